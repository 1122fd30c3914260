"""Views: a named filter, grouping, sort order and columns, from the config or saved by the user. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sandbox_console.errors import UsageError
from sandbox_console.hostfs.own_files import leave_damaged
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.service.config import ViewOptions
from sandbox_console.tui.base.saved_json import read_saved, save

NAME_MOST = 40
VIEWS_MOST = 200


class Views:
    """Views by name. A saved one takes precedence over one with that name in the config."""

    def __init__(self, folder: Path, configured: Mapping[str, ViewOptions]) -> None:
        self._file = folder / "views.json"
        self._configured = configured
        self._saved: dict[str, ViewOptions] = {}
        kept = read_saved(self._file)
        for name, one in kept.items():
            with contextlib.suppress(msgspec.ValidationError):
                self._saved[name] = msgspec.convert(one, ViewOptions)
        if len(self._saved) < len(kept):  # saving would lose the others
            leave_damaged(self._file, "some of its views are not what a console writes")
            with contextlib.suppress(OSError):
                self._write(self._saved)

    @property
    def names(self) -> list[str]:
        """Every name, saved ones first."""
        return [*self._saved, *(name for name in self._configured if name not in self._saved)]

    def get(self, name: str) -> ViewOptions:
        """Return the view with a name. Raises UsageError, which names the nearest match."""
        found = self._saved.get(name) or self._configured.get(name)
        if found is None:
            near = nearest(name, self.names)
            known = f"did you mean {near}?" if near else f"there are {', '.join(self.names) or 'none'}"
            raise UsageError(f"no view {name!r}: {known}", hint=":save NAME keeps what is shown now")
        return found

    def save(self, name: str, view: ViewOptions) -> None:
        """Save a view under a name, replacing an earlier one. Raises UsageError, and OSError if the disk fails."""
        if not name or len(name) > NAME_MOST or not name.isprintable() or " " in name:
            raise UsageError(
                f"{name[:NAME_MOST]!r} is not a name for a view: 1 to {NAME_MOST} characters without spaces"
            )
        if len(self._saved) >= VIEWS_MOST and name not in self._saved:
            raise UsageError(f"{VIEWS_MOST} views are saved already", hint=":forget NAME removes one")
        self._write({**self._saved, name: view})

    def forget(self, name: str) -> None:
        """Remove a saved view. Raises UsageError if none has the name."""
        if name not in self._saved:
            where = "it is in the config" if name in self._configured else "it was not saved"
            raise UsageError(f"view {name!r} cannot be removed: {where}")
        self._write({key: view for key, view in self._saved.items() if key != name})

    def _write(self, views: dict[str, ViewOptions]) -> None:
        save(self._file, msgspec.to_builtins(views))
        self._saved = views
