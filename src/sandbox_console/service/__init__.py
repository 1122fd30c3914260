"""What a face may see: one console over every backend, and the words to speak with it."""

from sandbox_console.policy.rules import Allow, Ask, Decision, Deny
from sandbox_console.service.attaching import AttachedSession, attach
from sandbox_console.service.bootstrap import check_configuration, open_console, preload
from sandbox_console.service.config import Config, Paths, TuiOptions, find_paths, load
from sandbox_console.service.console import Console
from sandbox_console.service.draft import DraftLine, change_to, read_draft, write_draft
from sandbox_console.service.feed import Feed, HostSeen, Replayed, Tally, Traffic, replay
from sandbox_console.service.forwarding import Forwarding, HeldForward, forward
from sandbox_console.service.gate import Consent
from sandbox_console.service.hub import Subscription
from sandbox_console.service.leaks import Leak, NotLooked
from sandbox_console.service.operation import ActionResult, ExecIO, Operation
from sandbox_console.service.outbound import Outbound, has_gateway, same_template
from sandbox_console.service.plan import Change, How, Plan, differing, fixed_fields, spec_of
from sandbox_console.service.running import TIMED_OUT_CODE
from sandbox_console.service.secrets import SecretInfo, Secrets
from sandbox_console.service.shells import ShellSession

__all__ = [
    "TIMED_OUT_CODE",
    "ActionResult",
    "Allow",
    "Ask",
    "AttachedSession",
    "Change",
    "Config",
    "Consent",
    "Console",
    "Decision",
    "Deny",
    "DraftLine",
    "ExecIO",
    "Feed",
    "Forwarding",
    "HeldForward",
    "HostSeen",
    "How",
    "Leak",
    "NotLooked",
    "Operation",
    "Outbound",
    "Paths",
    "Plan",
    "Replayed",
    "SecretInfo",
    "Secrets",
    "ShellSession",
    "Subscription",
    "Tally",
    "Traffic",
    "TuiOptions",
    "attach",
    "change_to",
    "check_configuration",
    "differing",
    "find_paths",
    "fixed_fields",
    "forward",
    "has_gateway",
    "load",
    "open_console",
    "preload",
    "read_draft",
    "replay",
    "same_template",
    "spec_of",
    "write_draft",
]
