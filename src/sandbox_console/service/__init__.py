"""The interface for faces: one console over every backend, and the types of its methods."""

from sandbox_console.backends.base import Backend
from sandbox_console.model.sandbox import spec_of
from sandbox_console.policy.rules import Allow, Ask, Decision, Deny
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service.bootstrap import (
    check_configuration,
    host_words,
    known_ground,
    last_names,
    open_console,
    preload,
)
from sandbox_console.service.config import Config, TuiOptions, load
from sandbox_console.service.console import Console
from sandbox_console.service.effects.change_plan import Change, How, Plan, differing, fixed_fields
from sandbox_console.service.effects.process import TIMED_OUT_CODE
from sandbox_console.service.fleet_reads import LastSeen
from sandbox_console.service.gate.gate import Consent
from sandbox_console.service.gate.operation import ActionResult, ExecIO, Operation
from sandbox_console.service.paths import Paths, find_paths
from sandbox_console.service.reads.denials import DenialFeed, has_gateway
from sandbox_console.service.reads.egress import Outbound, same_template
from sandbox_console.service.reads.hub import Subscription
from sandbox_console.service.reads.leaks import Leak, NotLooked
from sandbox_console.service.reads.lookup import LookupResult
from sandbox_console.service.reads.secrets import SecretInfo, Secrets
from sandbox_console.service.reads.traffic import Feed, HostSeen, Replayed, Tally, Traffic, replay
from sandbox_console.service.sessions.held_terminal import DETACHED
from sandbox_console.service.sessions.shell import ShellSession

__all__ = [
    "DETACHED",
    "TIMED_OUT_CODE",
    "ActionResult",
    "Allow",
    "Ask",
    "Backend",
    "Change",
    "Config",
    "Consent",
    "Console",
    "Decision",
    "DenialFeed",
    "Deny",
    "ExecIO",
    "Feed",
    "HostSeen",
    "How",
    "LastSeen",
    "Leak",
    "LookupResult",
    "NotLooked",
    "Operation",
    "Outbound",
    "Paths",
    "Plan",
    "Replayed",
    "SecretInfo",
    "SecretSource",
    "Secrets",
    "ShellSession",
    "Subscription",
    "Tally",
    "Traffic",
    "TuiOptions",
    "check_configuration",
    "differing",
    "find_paths",
    "fixed_fields",
    "has_gateway",
    "host_words",
    "known_ground",
    "last_names",
    "load",
    "open_console",
    "preload",
    "replay",
    "same_template",
    "spec_of",
]
