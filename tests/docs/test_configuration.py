"""docs/configuration.md lists every key that the console knows, with its default, and no other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from msgspec import structs

from sandbox_console.backends.a2a import options as a2a
from sandbox_console.backends.bubblewrap.options import Options as BubblewrapOptions
from sandbox_console.backends.docker import provider as docker
from sandbox_console.backends.kubernetes import provider as kubernetes
from sandbox_console.backends.microsandbox import provider as microsandbox
from sandbox_console.backends.microsandbox_legacy import options as microsandbox_legacy
from sandbox_console.backends.opensandbox import options as opensandbox
from sandbox_console.backends.podman import provider as podman
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service.alert_options import AlertChannel, AlertOptions, AlertRule
from sandbox_console.service.config import (
    AuditOptions,
    Config,
    HighlightRule,
    LogOptions,
    RecordingOptions,
    ShellOptions,
    ShipOptions,
    TuiOptions,
    ViewOptions,
)
from sandbox_console.service.host_options import HostOptions
from sandbox_console.service.oidc_options import GroupRole, OidcOptions
from sandbox_console.service.reads.fleet import ANSWER_S
from sandbox_console.service.server_options import (
    A3sBoxOptions,
    ApiOptions,
    McpOptions,
    MicrosandboxOptions,
    ServeTable,
)

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-zA-Z0-9_.]+)` \| ([^|]*) \| [^|]+ \|$", TEXT, re.MULTILINE))


def _defaults(kind: type, prefix: str) -> dict[str, object]:
    made = kind(**_REQUIRED.get(kind, {}))
    return {prefix + item.encode_name: getattr(made, item.name) for item in structs.fields(kind)}


_REQUIRED: dict[type, dict[str, object]] = {
    SecretSource: {"source": "env:X"}, AlertRule: {"on": "state"}, AlertChannel: {"kind": "desktop"},
    OidcOptions: {"issuer": "https://x", "client_id": "x", "roles": ()}, GroupRole: {"group": "x", "role": "admin"},
}  # fmt: skip


def test_every_key_is_listed_with_its_default() -> None:
    known = _defaults(Rules, "policy.") | _defaults(SecretSource, "secrets.NAME.")
    known |= {key: value for key, value in _defaults(TuiOptions, "tui.").items() if key != "tui.views"}
    known |= _defaults(ViewOptions, "tui.views.NAME.")
    known |= {key: value for key, value in _defaults(LogOptions, "logs.").items() if key != "logs.highlight"}
    known |= {f"logs.highlight.NAME.{item.name}": item.default for item in structs.fields(HighlightRule)}
    known |= {key: value for key, value in _defaults(AuditOptions, "audit.").items() if key != "audit.ship"}
    known |= _defaults(ShipOptions, "audit.ship.") | _defaults(RecordingOptions, "recording.")
    known |= {"backend": Config().backend, "backends.NAME.enabled": True, "backends.NAME.timeout_s": ANSWER_S}
    known |= _defaults(ApiOptions, "api.") | _defaults(McpOptions, "mcp.") | {"templates.NAME": None}
    known |= _defaults(ShellOptions, "shell.") | _defaults(MicrosandboxOptions, "microsandbox.")
    known |= _defaults(A3sBoxOptions, "a3s_box.")
    known |= {key: value for key, value in _defaults(ServeTable, "serve.").items() if key != "serve.oidc"}
    known |= _defaults(OidcOptions, "serve.oidc.") | _defaults(GroupRole, "serve.oidc.roles.")
    known |= _defaults(HostOptions, "hosts.NAME.")
    known |= {"alerts.keep_days": AlertOptions().keep_days}
    known |= _defaults(AlertRule, "alerts.rules.NAME.") | _defaults(AlertChannel, "alerts.channels.NAME.")
    assert ROWS.keys() == known.keys()
    for key, cell in ROWS.items():
        if cell.strip() == "required":
            continue
        expected = known[key]
        if cell.strip() == "none":
            assert expected is None, key
        else:
            written = tomllib.loads(f"v = {cell.strip().strip('`')}")["v"]
            assert written == (list(expected) if isinstance(expected, tuple) else expected), key


def test_every_option_of_a_backend_is_listed() -> None:
    options = {
        "a2a": a2a._OPTIONS,
        "bubblewrap": BubblewrapOptions.__struct_fields__,
        "docker": docker._OPTIONS,
        "kubernetes": kubernetes._OPTIONS,
        "podman": podman._OPTIONS,
        "microsandbox": microsandbox._OPTIONS,
        "microsandbox_legacy": microsandbox_legacy._OPTIONS,
        "opensandbox": opensandbox._OPTIONS,
    }
    for name, known in options.items():
        rows = [row for row in TEXT.splitlines() if row.startswith(f"| `backends.{name}.")]
        listed = {word for row in rows for word in re.findall(r"`(?:backends\.\w+\.)?(\w+)`", row.split(" | ")[0])}
        assert listed == set(known), name


def test_bubblewraps_page_has_each_option_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "bubblewrap.md").read_text().split("## Options")[1]
    rows = [
        re.findall(r"`([^`]+)`", "|".join(row.split("|")[1:3])) for row in page.splitlines() if row.startswith("| `")
    ]
    written = {name: tomllib.loads(f"v = {value}")["v"] for row in rows for name, value in _pairs(row)}
    known = structs.asdict(BubblewrapOptions())
    assert written == known


def _pairs(row: list[str]) -> list[tuple[str, str]]:
    """``name, name, default, default`` as pairs."""
    half = len(row) // 2
    return list(zip(row[:half], row[half:], strict=True))


def test_top_level_tables_are_the_ones_described() -> None:
    assert {item.name for item in structs.fields(Config)} == {key.split(".")[0] for key in ROWS}
