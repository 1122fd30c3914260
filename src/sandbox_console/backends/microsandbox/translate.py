"""Translates a microsandbox handle into the console's model.

Its config holds secret values in clear text, and variables that may be secrets. Only the fields named here are taken
from it, and only the names of variables and secrets. No other module reads it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from sandbox_console.backends.common.installation import ANOTHER
from sandbox_console.backends.microsandbox import labels as own
from sandbox_console.backends.microsandbox import main_process, ports
from sandbox_console.backends.microsandbox.boot_failure import Cause
from sandbox_console.backends.microsandbox.boots import Run
from sandbox_console.errors import InvalidSpec
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

_STATUS = {
    "created": Status.CREATED,
    "starting": Status.STARTING,
    "running": Status.RUNNING,
    "draining": Status.STOPPING,
    "paused": Status.PAUSED,
    "stopped": Status.EXITED,
    "crashed": Status.LOST,
}
_JOBS = {"starting": Status.STARTING, "running": Status.RUNNING, "failed": Status.FAILED}

_NO_LAUNCH = "the console that booted it ended before it started the command; next: start it again"

Config = Mapping[str, Any]

LAUNCH_S = 120.0
"""Seconds. A console starts the main process as soon as the guest answers (5 s if emulated), so not after this time."""


class View(Struct, frozen=True):
    """What other modules may know of a sandbox. It contains no values of variables or secrets."""

    id: str
    name: str
    status: str
    image: str
    labels: Mapping[str, str]
    spec: SandboxSpec | None
    created_at: float | None
    updated_at: float | None
    facts: tuple[Fact, ...]
    digest: str
    ports: ports.Ports
    public: Config
    """The config without the values of variables and secrets."""

    @property
    def managed(self) -> bool:
        """Whether the console made it."""
        return own.ID in self.labels

    @property
    def ref(self) -> SandboxRef:
        """Its reference: the console's own id if it has one, else the runtime's."""
        return SandboxRef("microsandbox", "local", self.labels.get(own.ID, self.id))

    @property
    def shown_name(self) -> str:
        """Its name in the console."""
        return self.labels.get(own.NAME, self.name)


def view(handle: Any) -> View:
    """Read a handle."""
    config = json.loads(handle.config_json)
    labels = {str(key): str(value) for key, value in (config.get("labels") or {}).items()}
    return View(
        id=str(handle.id),
        name=str(handle.name),
        status=str(handle.status),
        image=image(config.get("image")),
        labels=labels,
        spec=_spec(labels),
        created_at=handle.created_at / 1000 if handle.created_at else None,
        updated_at=handle.updated_at / 1000 if handle.updated_at else None,
        facts=tuple(_facts(config)),
        digest=str(config.get("manifest_digest") or ""),
        ports=ports.of_config(config.get("network") or {}),
        public=_public(config),
    )


def sandbox(view: View, run: Run, jobs: Sequence[Any], failed: Cause | None, *, ours: str = "") -> Sandbox:
    """A sandbox, from its view, its newest boot, its jobs, and the reason why a boot failed.

    ``ours`` is the id of this installation. A sandbox of another console counts as somebody else's.
    """
    anothers = view.labels.get(own.INSTALLATION, "") != ours
    job = main_process.of_boot(jobs, view.spec.command if view.spec else (), run.id)
    status = _status(view, run, job, failed)
    over = not status.live and status is not Status.CREATED
    return Sandbox(
        ref=view.ref,
        name=view.shown_name,
        status=status,
        image=view.spec.image if view.spec else view.image,
        created_at=view.created_at,
        started_at=_ms(job.started_at) if job is not None and job.started_at else run.started_at,
        finished_at=_finished(view, job) if over else None,
        exit=_exit(view, run, job) if over else None,
        labels=own.users(view.labels) if view.managed else dict(view.labels),
        managed=view.managed and not anothers,
        maker="" if view.managed and not anothers else ANOTHER if view.managed else "microsandbox",
        spec=None if anothers else view.spec,
        effective=(*_effective(view), *ports.facts(view.ports, run.places)),
        pid=run.pid if status.live else None,
        detail=_detail(status, run, job, failed),
    )


def _status(view: View, run: Run, job: Any | None, failed: Cause | None) -> Status:
    status = _STATUS.get(view.status, Status.UNKNOWN)
    if status is Status.LOST and job is not None and view.labels.get(own.ENDED, "").startswith(job.id):
        return Status.EXITED  # the console ended it
    if status in (Status.EXITED, Status.LOST) and (failed is not None or (job is not None and job.state == "failed")):
        return Status.FAILED
    if status is Status.RUNNING and view.spec is not None and view.spec.command:
        return _launching(run) if job is None else _JOBS.get(str(job.state), Status.EXITED)
    return status


def _launching(run: Run) -> Status:
    """The state of a microVM that is running without its main process."""
    late = run.started_at is not None and time.time() - run.started_at > LAUNCH_S
    return Status.FAILED if late else Status.STARTING


def _exit(view: View, run: Run, job: Any | None) -> Exit | None:
    found = main_process.exit_of(job, dict(view.labels), run.oom) if job is not None else Exit()
    return structs.replace(found, reason=run.reason) if run.reason and found.code is None else found


def _finished(view: View, job: Any | None) -> float | None:
    if job is not None and job.finished_at and job.state == "exited":
        return _ms(job.finished_at)
    return view.updated_at


def _detail(status: Status, run: Run, job: Any | None, failed: Cause | None) -> str:
    if status is Status.FAILED and failed is not None:
        return f"{failed[0]}; next: {failed[1]}"
    if status is Status.FAILED:
        return _unrun(job) if job is not None else _NO_LAUNCH
    if status is Status.LOST:
        return (
            f"crashed: {run.reason or 'the microVM process ended without a word (SIGKILL, out of memory or a fault)'}"
        )
    return run.reason if status is Status.EXITED else ""


def _unrun(job: Any) -> str:
    reason = (job.failure or {}).get("message") or job.error
    return f"its command could not be run: {reason}" if reason else "its command could not be run"


def _ms(value: float) -> float:
    return value / 1000


def _spec(labels: Mapping[str, str]) -> SandboxSpec | None:
    try:
        spec = SandboxSpec.from_dict(json.loads(labels[own.SPEC]))
    except (KeyError, ValueError, AttributeError, TypeError, InvalidSpec):
        return None
    return structs.replace(spec, name=labels.get(own.NAME, spec.name))


def image(value: Any) -> str:
    """The image's name, or ``dir:PATH`` for a folder of this host."""
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or len(value) != 1:
        return ""
    ((kind, inner),) = value.items()
    if isinstance(inner, Mapping):
        inner = next((inner[key] for key in ("reference", "path", "name") if isinstance(inner.get(key), str)), "")
    return f"dir:{inner}" if kind == "Bind" else str(inner)


def _effective(view: View) -> tuple[Fact, ...]:
    extra = []
    if view.managed and view.spec is not None and not view.spec.command:
        extra.append(Fact("command", "none", note="the microVM idles; its image's own command is not run"))
    if view.name != view.shown_name:
        extra.append(Fact("name", view.name, note="what the runtime calls it since the rename"))
    return (*view.facts, *extra)


def _facts(config: Config) -> Iterator[Fact]:
    resources, runtime = config.get("resources") or {}, config.get("runtime") or {}
    yield Fact("cpus", str(resources.get("cpus", "")), note=f"up to {resources.get('max_cpus')} while it runs")
    yield Fact("memory_mib", str(resources.get("memory_mib", "")), note=f"up to {resources.get('max_memory_mib')}")
    for field in ("user", "workdir"):
        if runtime.get(field):
            yield Fact(field, str(runtime[field]))
    yield Fact("env", ", ".join(_env_names(config)) or "none", note="names only")
    network = config.get("network") or {}
    yield _egress(network)
    yield Fact("secrets", ", ".join(_secret_names(config)) or "none", note="of these the sandbox sees placeholders")
    lifecycle = config.get("lifecycle") or {}
    for field, key in (("max_duration_s", "max_duration_secs"), ("idle_timeout_s", "idle_timeout_secs")):
        if lifecycle.get(key) is not None:
            yield Fact(field, str(lifecycle[key]))
    yield Fact("isolation", "microVM", note="a kernel of its own")


def public_spec(sandbox: Sandbox) -> Config:
    """The spec of a sandbox that the runtime does not know yet, without the values of its variables."""
    spec = sandbox.spec.to_dict() if sandbox.spec else {}
    return spec | {"env": dict.fromkeys(spec["env"], "***")} if "env" in spec else spec


def _env_names(config: Config) -> list[str]:
    return [str(item.get("key")) for item in config.get("env") or () if isinstance(item, Mapping)]


def _secret_names(config: Config) -> list[str]:
    secrets = ((config.get("network") or {}).get("secrets") or {}).get("secrets") or ()
    return [str(item.get("env_var")) for item in secrets if isinstance(item, Mapping)]


def _egress(network: Config) -> Fact:
    if not network.get("enabled"):
        return Fact("egress", "none", note="no network at all")
    policy = network.get("policy") or {}
    allowed = [_destination(rule) for rule in policy.get("rules") or () if _lets_out(rule)]
    default = str(policy.get("default_egress") or "the runtime's own default")
    if not allowed and default == "deny":
        return Fact("egress", "none", note="the runtime refuses all; cannot be changed while it exists")
    return Fact("egress", ", ".join(allowed) or default, note=f"else {default}; cannot be changed while it exists")


def _lets_out(rule: Any) -> bool:
    return isinstance(rule, Mapping) and rule.get("direction") == "egress" and rule.get("action") == "allow"


def _destination(rule: Config) -> str:
    destination, ports = rule.get("destination"), rule.get("ports") or ()
    name = (
        " ".join(str(value) for value in destination.values()) if isinstance(destination, Mapping) else str(destination)
    )
    shown = ",".join(str(port.get("start", port)) if isinstance(port, Mapping) else str(port) for port in ports)
    return f"{name}:{shown}" if shown else name


def _public(config: Config) -> Config:
    """The config without any value of a variable, a secret, a script or a credential."""
    shown = dict(config)
    shown["env"] = dict.fromkeys(_env_names(config), "***")
    shown["labels"] = {key: value for key, value in (config.get("labels") or {}).items() if key != own.SPEC}
    network = dict(config.get("network") or {})
    network["secrets"] = dict.fromkeys(_secret_names(config), "***")
    network.pop("proxy", None)
    shown["network"] = network
    runtime = dict(config.get("runtime") or {})
    runtime["scripts"] = sorted(runtime.get("scripts") or {})
    shown["runtime"] = runtime
    for key in ("init", "patches", "registry", "registry_auth"):
        shown.pop(key, None)
    return shown
