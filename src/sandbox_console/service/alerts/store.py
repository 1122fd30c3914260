"""Alerts on disk: open ones, messages that have not arrived yet, silences, and how far each source was read.

One process at a time writes what the rules find; faces add silences and read. A tick of the rules is one transaction,
so a kill at any moment leaves either an alert with its messages, or neither, and then it is found again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from sandbox_console.errors import NotFound
from sandbox_console.model.alert import Alert, AlertMessage, AlertState, Delivery, Silence
from sandbox_console.service.alerts.database import AlertDatabase


class LastMessage(Struct, frozen=True):
    """The last message about a rule and a subject: of which alert, when, and how many were held back since."""

    alert: str
    at: float
    kept: int = 0


class Hits(Struct, frozen=True):
    """The newest times at which something happened that a rule counts, and when the rule last held because of it."""

    times: tuple[float, ...] = ()
    held_at: float | None = None
    name: str = ""
    text: str = ""


Key = tuple[str, str]
"""A rule's name and a subject; of a place, its source and a subject."""


class Changes(Struct):
    """What one tick of the rules changes. A value of None removes it."""

    alerts: dict[str, Alert | None] = field(default_factory=dict)
    last_message: dict[Key, LastMessage] = field(default_factory=dict)
    hits: dict[Key, Hits | None] = field(default_factory=dict)
    places: dict[Key, Any] = field(default_factory=dict)
    messages: list[tuple[AlertMessage, tuple[str, ...]]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.alerts or self.last_message or self.hits or self.places or self.messages)


class SavedAlerts(Struct):
    """What an earlier process left. ``since`` is when each rule began to be watched as it is written now."""

    alerts: list[Alert]
    last_message: dict[Key, LastMessage]
    hits: dict[Key, Hits]
    places: dict[Key, Any]
    since: dict[str, float]


class AlertStore:
    """The file. Methods block and may be called on any thread; each raises ConsoleError if it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._database = AlertDatabase(folder)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._database.path

    def exists(self) -> bool:
        """Whether there is a file, so whether rules were ever watched or silenced here."""
        return self._database.exists()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # What the rules found

    def commit(self, changes: Changes, now: float) -> None:
        """Write one tick, all of it or nothing."""
        with self._database.transaction() as db:
            [number] = db.execute("SELECT coalesce(max(changed), 0) + 1 FROM alert").fetchone()
            for id_, alert in changes.alerts.items():
                _put_alert(db, id_, alert, number)
            for (rule, subject), last_message in changes.last_message.items():
                row = (rule, subject, last_message.alert, last_message.at, last_message.kept)
                db.execute("INSERT OR REPLACE INTO told VALUES (?, ?, ?, ?, ?)", row)
            _put_all(db, "hits", "rule", changes.hits)
            _put_all(db, "place", "source", changes.places)
            for message, channels in changes.messages:
                db.execute(
                    "INSERT INTO message VALUES (?, ?, ?)", (message.id, message.at, msgspec.json.encode(message))
                )
                db.executemany(
                    "INSERT INTO delivery (message, channel, attempts, next_at, error) VALUES (?, ?, 0, ?, '')",
                    [(message.id, channel, now) for channel in channels],
                )

    def kept(self, digests: Mapping[str, str], now: float) -> SavedAlerts:
        """What an earlier process left, for rules with these digests."""
        since = self._begin_rules(digests, now)
        return SavedAlerts(self._open_alerts(), self._last_messages(), self._hits(), self._places(), since)

    def _open_alerts(self) -> list[Alert]:
        """The alerts that are pending or firing."""
        return self._alerts("state != ?", AlertState.RESOLVED)

    def alerts(self, *, resolved: bool = False, limit: int = 1000) -> list[Alert]:
        """The firing alerts, and with ``resolved`` also the resolved ones; the newest first."""
        states = (AlertState.FIRING, AlertState.RESOLVED if resolved else AlertState.FIRING)
        found = self._alerts("state IN (?, ?) ORDER BY changed DESC LIMIT ?", *states, limit)
        return sorted(found, key=lambda alert: -(alert.fired_at or alert.since))

    def changed_since(self, number: int) -> tuple[int, list[Alert]]:
        """The alerts that changed after this number, and the number to give the next time; 0 for all that fire."""
        if not self.exists():
            return number, []
        with self._database.reading() as db:
            [newest] = db.execute("SELECT coalesce(max(changed), 0) FROM alert").fetchone()
        if newest == number:
            return number, []
        where = "changed > ?" if number else "changed > ? AND state = 'firing'"
        return newest, self._alerts(where, number)

    def unrecorded(self) -> list[Alert]:
        """Alerts whose firing, or whose end, is not in the audit log yet."""
        return self._alerts("state IN ('firing', 'resolved') AND recorded != state ORDER BY changed")

    def recorded(self, alert: Alert) -> None:
        """Note that an alert's state is in the audit log."""
        with self._database.transaction() as db:
            db.execute("UPDATE alert SET recorded = ? WHERE id = ?", (alert.state, alert.id))

    def _last_messages(self) -> dict[Key, LastMessage]:
        """The last message about each rule and subject."""
        rows = self._database.rows("SELECT rule, subject, alert, at, kept FROM told")
        return {(rule, subject): LastMessage(alert, at, kept) for rule, subject, alert, at, kept in rows}

    def _hits(self) -> dict[Key, Hits]:
        """What the rules have counted."""
        rows = self._database.rows("SELECT rule, subject, data FROM hits")
        return {(rule, subject): msgspec.json.decode(data, type=Hits) for rule, subject, data in rows}

    def _places(self) -> dict[Key, Any]:
        """How far each source was read."""
        rows = self._database.rows("SELECT source, subject, data FROM place")
        return {(source, subject): msgspec.json.decode(data) for source, subject, data in rows}

    def _begin_rules(self, digests: Mapping[str, str], now: float) -> dict[str, float]:
        """Since when each rule is watched as it is written now. What happened before does not concern it."""
        with self._database.transaction() as db:
            known = {
                name: (digest, since) for name, digest, since in db.execute("SELECT name, digest, since FROM rule")
            }
            found = {}
            for name, digest in digests.items():
                before = known.get(name)
                found[name] = before[1] if before is not None and before[0] == digest else now
                db.execute("INSERT OR REPLACE INTO rule VALUES (?, ?, ?)", (name, digest, found[name]))
            for name in known.keys() - digests.keys():
                db.execute("DELETE FROM rule WHERE name = ?", (name,))
        return found

    def forget(self, before: float) -> None:
        """Remove alerts that ended, and silences that ran out, before a time."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM alert WHERE state = 'resolved' AND ended < ? AND recorded = state", (before,))
            db.execute("DELETE FROM told WHERE at < ?", (before,))
            db.execute("DELETE FROM silence WHERE until < ?", (before,))

    # Messages on their way

    def due(self, channel: str, now: float, limit: int = 20) -> list[Delivery]:
        """Messages for a channel whose time has come, oldest first."""
        return self._deliveries("channel = ? AND next_at <= ? ORDER BY seq LIMIT ?", channel, now, limit)

    def waiting(self) -> list[Delivery]:
        """All messages that have not arrived, oldest first."""
        return self._deliveries("1 ORDER BY seq")

    def next_due(self, channel: str) -> float | None:
        """When the next message for a channel is tried; None if there is none."""
        rows = self._database.rows("SELECT min(next_at) FROM delivery WHERE channel = ?", channel)
        return rows[0][0] if rows else None

    def delivered(self, delivery: Delivery) -> None:
        """A message has arrived, or is given up."""
        with self._database.transaction() as db:
            db.execute(
                "DELETE FROM delivery WHERE message = ? AND channel = ?", (delivery.message.id, delivery.channel)
            )
            db.execute("DELETE FROM message WHERE id NOT IN (SELECT message FROM delivery)")

    def failed(self, delivery: Delivery) -> None:
        """A message has not arrived: keep when it is tried again, and why."""
        with self._database.transaction() as db:
            row = (delivery.attempts, delivery.next_at, delivery.error, delivery.message.id, delivery.channel)
            db.execute(
                "UPDATE delivery SET attempts = ?, next_at = ?, error = ? WHERE message = ? AND channel = ?", row
            )

    # Silences

    def silence(self, rule: str, sandbox: str, until: float, by: str, reason: str, now: float) -> Silence:
        """Add a silence. One for the same rule and sandboxes that is in force lasts longer instead."""
        with self._database.transaction() as db:
            rows = db.execute("SELECT id, data FROM silence WHERE until > ? ORDER BY id", (now,)).fetchall()
            made = Silence(0, rule, sandbox, until, by, reason, now)
            for id_, data in rows:
                same = msgspec.json.decode(data, type=Silence)
                if (same.rule, same.sandbox) == (rule, sandbox):
                    made = msgspec.structs.replace(made, id=id_, until=max(until, same.until))
                    row = (made.until, msgspec.json.encode(made), id_)
                    db.execute("UPDATE silence SET until = ?, data = ? WHERE id = ?", row)
                    return made
            cursor = db.execute("INSERT INTO silence (until, data) VALUES (?, ?)", (until, msgspec.json.encode(made)))
            return msgspec.structs.replace(made, id=cursor.lastrowid or 0)

    def end_silence(self, id_: int) -> Silence:
        """Remove a silence. Raises NotFound."""
        for silence in self.silences(0.0):
            if silence.id == id_:
                with self._database.transaction() as db:
                    db.execute("DELETE FROM silence WHERE id = ?", (id_,))
                return silence
        raise NotFound(f"there is no silence {id_}", hint="sandbox-console alerts silence lists them")

    def silences(self, now: float) -> list[Silence]:
        """The silences that are in force at a time."""
        rows = self._database.rows("SELECT id, data FROM silence WHERE until > ? ORDER BY id", now)
        return [msgspec.structs.replace(msgspec.json.decode(data, type=Silence), id=id_) for id_, data in rows]

    def _alerts(self, where: str, *values: Any) -> list[Alert]:
        rows = self._database.rows(f"SELECT data FROM alert WHERE {where}", *values)  # noqa: S608 - ours
        return [msgspec.json.decode(data, type=Alert) for (data,) in rows]

    def _deliveries(self, where: str, *values: Any) -> list[Delivery]:
        sql = (
            "SELECT m.data, d.channel, d.attempts, d.next_at, d.error"  # noqa: S608 - ours
            f" FROM delivery d JOIN message m ON m.id = d.message WHERE {where}"
        )
        return [
            Delivery(msgspec.json.decode(data, type=AlertMessage), channel, attempts, next_at, error)
            for data, channel, attempts, next_at, error in self._database.rows(sql, *values)
        ]


def _put_alert(db: sqlite3.Connection, id_: str, alert: Alert | None, number: int) -> None:
    if alert is None:
        db.execute("DELETE FROM alert WHERE id = ?", (id_,))
        return
    row = (id_, alert.rule, alert.subject, str(alert.state), number, alert.resolved_at, msgspec.json.encode(alert))
    db.execute(
        "INSERT INTO alert (id, rule, subject, state, changed, ended, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET (state, changed, ended, data)"
        " = (excluded.state, excluded.changed, excluded.ended, excluded.data)",
        row,
    )


def _put_all(db: sqlite3.Connection, table: str, key: str, values: Mapping[Key, Any]) -> None:
    gone: Iterable[Key] = [at for at, value in values.items() if value is None]
    db.executemany(f"DELETE FROM {table} WHERE {key} = ? AND subject = ?", gone)  # noqa: S608 - ours
    kept = [(*at, msgspec.json.encode(value)) for at, value in values.items() if value is not None]
    db.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", kept)  # noqa: S608 - ours
