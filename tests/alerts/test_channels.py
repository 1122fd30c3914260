"""Each channel delivers to a real receiver: a web server, an SMTP server, a program, a desktop on D-Bus."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from standardwebhooks import Webhook
from tests.alerts.conftest import Receiver, message, until

from sandbox_console.errors import ConsoleError, SecretError
from sandbox_console.service.alert_options import AlertChannel
from sandbox_console.service.alerts.channels import command, desktop, email, message_json, webhook
from sandbox_console.service.alerts.channels.channel import NotDelivered

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOSTILE = "\x1b]52;c;AAAA\x07 <!channel> <b>&amp; \u202egnp \r\nBcc: evil@example.com"


async def reveal(name: str) -> str:
    return {"KEY": KEY, "URL": "not a secret's business", "PASSWORD": "correct horse battery"}[name]


# --- webhooks


async def test_a_webhook_is_signed_as_its_standard_says(receiver: Receiver) -> None:
    await webhook.send(AlertChannel(kind="webhook", url=receiver.url, key="KEY"), message(), reveal)
    [(headers, data)] = receiver.requests
    told = Webhook(KEY).verify(data, headers)
    assert (told["id"], told["status"], told["alerts"][0]["text"]) == ("msg_1", "firing", "out of memory")
    assert headers["webhook-id"] == "msg_1"
    with pytest.raises(Exception, match="signature"):
        Webhook(KEY).verify(data.replace(b"memory", b"rhythm"), headers)


@pytest.mark.parametrize(("status", "headers", "again"), [(500, {}, None), (302, {"Location": "http://127.0.0.1:1/"}, None), (429, {"Retry-After": "90"}, 90.0)])  # fmt: skip
async def test_only_an_answer_of_2xx_is_an_arrival(
    receiver: Receiver, status: int, headers: dict, again: float | None
) -> None:
    receiver.status, receiver.headers = status, headers
    with pytest.raises(NotDelivered, match=f"it answered {status}") as error:
        await webhook.send(AlertChannel(kind="webhook", url=receiver.url), message(), reveal)
    assert error.value.again_s == again
    assert receiver.tries == 1


async def test_a_receiver_that_is_away_or_hangs(receiver: Receiver) -> None:
    channel = AlertChannel(kind="webhook", url=receiver.url, timeout_s=0.5)
    await receiver.stop()
    with pytest.raises(NotDelivered, match="cannot be reached"):
        await webhook.send(channel, message(), reveal)
    hangs = await asyncio.start_server(lambda *_: asyncio.sleep(60), "127.0.0.1", 0)
    port = hangs.sockets[0].getsockname()[1]
    with pytest.raises(NotDelivered, match=r"no answer within 0.5 s"):
        await webhook.send(
            AlertChannel(kind="webhook", url=f"http://127.0.0.1:{port}/", timeout_s=0.5), message(), reveal
        )
    hangs.close()


async def test_an_address_that_is_a_secret_is_in_no_error() -> None:
    with pytest.raises(NotDelivered) as error:
        await webhook.send(AlertChannel(kind="webhook", url_secret="URL"), message(), reveal)
    assert "secret's business" not in str(error.value)


def test_slack_gets_no_markup_of_a_guests() -> None:
    told = message_json.slack(message(HOSTILE))
    assert "<!channel>" not in told["text"]
    assert "&lt;!channel&gt;" in told["text"]
    assert {block["text"]["type"] for block in told["blocks"]} == {"plain_text"}
    many = message_json.slack(message(*(f"text {number} " * 40 for number in range(100))))
    assert max(len(block["text"]["text"]) for block in many["blocks"]) <= 3000


def test_alertmanager_gets_what_its_api_takes() -> None:
    [told] = message_json.alertmanager(message())
    assert told["labels"] == {"alertname": "died", "severity": "critical", "sandbox": "web", "subject": "fake/local/id0",
                              "alert_id": "alert_0", "console": "here"}  # fmt: skip
    rfc3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
    assert rfc3339.fullmatch(told["startsAt"])
    assert told["startsAt"] < told["endsAt"]


# --- commands


async def test_a_command_gets_the_message_on_stdin_and_nothing_in_its_arguments(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = ("sh", "-c", 'printf "%s\\n" "$#" > "$0"; cat >> "$0"', str(out))
    await command.send(AlertChannel(kind="command", command=program), message(HOSTILE), reveal)
    count, data = out.read_text().splitlines()
    assert count == "0"
    assert json.loads(data)["alerts"][0]["text"] == HOSTILE
    assert data.isascii()


@pytest.mark.parametrize(
    ("program", "why"),
    [(("sh", "-c", "cat >/dev/null; echo 'no \x1b[2J pager' >&2; exit 3"), r"sh ended with exit code 3: no ␛\[2J pager"),
     (("/no/such/program",), "program cannot be run: No such file or directory"),
     (("sh", "-c", "exec sleep 60"), "sh did not end within 0.5 s"),
     (("true",), "")],
)  # fmt: skip
async def test_how_a_command_fails(program: tuple[str, ...], why: str) -> None:
    channel = AlertChannel(kind="command", command=program, timeout_s=0.5)
    if not why:  # one that reads nothing
        await command.send(channel, message("x" * 100_000), reveal)
        return
    with pytest.raises(NotDelivered, match=why):
        await command.send(channel, message(), reveal)


async def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = ("sh", "-c", f"sleep 60 >/dev/null 2>&1 & echo $! > {pid}")
    await command.send(AlertChannel(kind="command", command=program), message(), reveal)
    await until(
        lambda: (
            not Path(f"/proc/{pid.read_text().strip()}").exists()
            or "Z" in Path(f"/proc/{pid.read_text().strip()}/stat").read_text()
        )
    )


# --- mail


class Mailbox:
    def __init__(self) -> None:
        self.got: list[object] = []
        self.refuse = ""

    async def handle_DATA(self, server, session, envelope):  # noqa: N802 - aiosmtpd's name
        if self.refuse:
            return self.refuse
        self.got.append(envelope)
        return "250 OK"


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tls.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", path, "-out", tmp_path / "crt.pem",
         "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "crt.pem"))
    path.write_text(path.read_text() + (tmp_path / "crt.pem").read_text())
    return path


def authenticate(server, session, envelope, mechanism, data) -> AuthResult:
    good = LoginPassword(b"console", b"correct horse battery")
    return AuthResult(success=data == good, handled=False)


def mail_channel(port: int, **fields: object) -> AlertChannel:
    return AlertChannel(
        kind="email", server=f"localhost:{port}", sender="console@example.com", recipients=("ops@example.com", "me@example.com"),
        timeout_s=5.0, **fields,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("tls", ["none", "starttls", "tls"])
async def test_a_mail_arrives(tls: str, certificate: Path) -> None:
    box, context = Mailbox(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    secure = {
        "starttls": {"tls_context": context, "require_starttls": True, "auth_required": True},
        "tls": {"ssl_context": context},
    }.get(tls, {})
    login = {} if tls == "none" else {"authenticator": authenticate, "auth_require_tls": tls == "starttls"}
    controller = Controller(box, hostname="localhost", port=0, **secure, **login)
    controller.port = _free_port()
    await asyncio.to_thread(controller.start)
    try:
        user = {} if tls == "none" else {"user": "console", "password": "PASSWORD"}
        channel = mail_channel(controller.port, tls=tls, **user)
        await email.send(channel, message(HOSTILE, name="we\nb"), reveal)
        [envelope] = box.got
        assert envelope.rcpt_tos == ["ops@example.com", "me@example.com"]
        text = envelope.content.decode()
        head, _, _ = text.replace("\r\n", "\n").partition("\n\n")
        assert "Message-ID: <msg_1@example.com>" in head
        assert not re.search(r"^Bcc:", head, re.MULTILINE)
        box.refuse = "451 later"
        with pytest.raises(NotDelivered, match="the server answered 451"):
            await email.send(channel, message(), reveal)
    finally:
        await asyncio.to_thread(controller.stop)


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


async def test_a_mail_server_without_a_certificate_that_holds_gets_no_password(certificate: Path, monkeypatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    box, context = Mailbox(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    controller = Controller(box, hostname="localhost", port=_free_port(), tls_context=context)
    await asyncio.to_thread(controller.start)
    try:
        with pytest.raises(NotDelivered, match=r"cannot be reached: .*certificate"):
            await email.send(mail_channel(controller.port, user="console", password="PASSWORD"), message(), reveal)
        with pytest.raises(NotDelivered, match="cannot be reached"):
            await email.send(mail_channel(_free_port(), tls="none"), message(), reveal)
    finally:
        await asyncio.to_thread(controller.stop)
    assert box.got == []


# --- the desktop

_SERVER = """
import asyncio, json, sys
from jeepney import DBusAddress, MessageType, message_bus, new_method_return
from jeepney.io.asyncio import open_dbus_connection

async def main():
    connection = await open_dbus_connection()
    await connection.send(message_bus.RequestName("org.freedesktop.Notifications"))
    print("ready", flush=True)
    while True:
        got = await connection.receive()
        if got.header.message_type is MessageType.method_call:
            print(json.dumps([str(one) for one in got.body[:5]]), flush=True)
            await connection.send(new_method_return(got, "u", (1,)))

asyncio.run(main())
"""


@pytest.fixture
async def bus(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.subprocess.Process]:
    if not shutil.which("dbus-daemon"):
        pytest.skip("no dbus-daemon")
    daemon = await asyncio.create_subprocess_exec(
        "dbus-daemon", "--session", "--nofork", "--print-address", stdout=asyncio.subprocess.PIPE
    )
    address = (await daemon.stdout.readline()).decode().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    yield daemon
    daemon.terminate()
    await daemon.wait()


async def test_a_desktop_shows_it(bus: asyncio.subprocess.Process) -> None:
    shows = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVER, stdout=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    try:
        while b"ready" not in await shows.stdout.readline():
            pass
        await desktop.send(AlertChannel(kind="desktop"), message("<b>bold</b>"), None)
        while not (line := await shows.stdout.readline()).startswith(b"["):
            pass
        _, _, _, head, body = json.loads(line)
        assert (head, body) == ("[critical] died", "web: &lt;b&gt;bold&lt;/b&gt;")
    finally:
        shows.terminate()
        await shows.wait()


async def test_a_bus_without_a_desktop_and_a_terminal_that_shows_it(bus, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TMUX", "STY", "TEXTUAL_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    written: list[str] = []
    monkeypatch.setenv("TERM_PROGRAM", "WezTerm")
    await desktop.send(AlertChannel(kind="desktop"), message(HOSTILE), written.append)
    [sequence] = written
    assert sequence.startswith("\x1b]9;sandbox-console [critical] died")
    assert sequence.endswith("\x07")
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", sequence[4:-1])
    monkeypatch.setenv("TMUX", "/tmp/tmux")
    with pytest.raises(NotDelivered, match="there is no desktop"):
        await desktop.send(AlertChannel(kind="desktop"), message(), written.append)


async def test_a_bad_key_is_told_without_its_value(receiver: Receiver) -> None:
    async def bad(_: str) -> str:
        return "whsec_not base64!"

    async def none(_: str) -> str:
        raise SecretError("secret 'KEY': KEY is not set")

    channel = AlertChannel(kind="webhook", url=receiver.url, key="KEY")
    with pytest.raises(ConsoleError) as error:
        await webhook.send(channel, message(), bad)
    assert "not base64" not in str(error.value)
    with pytest.raises(SecretError):
        await webhook.send(channel, message(), none)
    assert receiver.tries == 0
