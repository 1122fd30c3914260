"""The interface for faces: one console over every backend, and the types of its methods."""

from sandbox_console.backends.base import Backend
from sandbox_console.model.sandbox import spec_of
from sandbox_console.policy.rules import Allow, Ask, Decision, Deny
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service.bootstrap import check_configuration, known_ground, last_names, open_console, preload
from sandbox_console.service.config import Config, Paths, TuiOptions, find_paths, load
from sandbox_console.service.console import Console
from sandbox_console.service.effects.change_plan import Change, How, Plan, differing, fixed_fields
from sandbox_console.service.effects.port_forward import Forwarding
from sandbox_console.service.effects.process import TIMED_OUT_CODE
from sandbox_console.service.effects.secret_definition import SecretDefinition, SecretDefinitions
from sandbox_console.service.gate.gate import Consent
from sandbox_console.service.gate.operation import ActionResult, ExecIO, Operation
from sandbox_console.service.incident.bundle import Made
from sandbox_console.service.incident.bundle import bundle as make_bundle
from sandbox_console.service.incident.bundle_file import WriteFailed
from sandbox_console.service.incident.bundle_open import open_bundle
from sandbox_console.service.incident.bundle_verify import verify as verify_bundle
from sandbox_console.service.incident.cause import DENIED_S, Cause, cause, judge
from sandbox_console.service.incident.quarantine import Planned, Quarantined, keep_evidence, quarantine, release
from sandbox_console.service.incident.quarantine import plan as plan_quarantine
from sandbox_console.service.incident.timeline import Span, timeline
from sandbox_console.service.presets import Preset, load_presets
from sandbox_console.service.reads.denials import DenialFeed, has_gateway
from sandbox_console.service.reads.egress import Outbound, same_template
from sandbox_console.service.reads.egress_draft import DraftLine, change_to, read_draft, write_draft
from sandbox_console.service.reads.hub import Subscription
from sandbox_console.service.reads.leaks import Leak, NotLooked
from sandbox_console.service.reads.lookup import Found
from sandbox_console.service.reads.losses import Losses
from sandbox_console.service.reads.secrets import SecretInfo, Secrets
from sandbox_console.service.reads.traffic import Feed, HostSeen, Replayed, Tally, Traffic, replay
from sandbox_console.service.sessions.attach import AttachedSession, attach
from sandbox_console.service.sessions.forward import HeldForward, forward
from sandbox_console.service.sessions.shell import ShellSession
from sandbox_console.service.templates import Template, Templates

__all__ = [
    "DENIED_S",
    "TIMED_OUT_CODE",
    "ActionResult",
    "Allow",
    "Ask",
    "AttachedSession",
    "Backend",
    "Cause",
    "Change",
    "Config",
    "Consent",
    "Console",
    "Decision",
    "DenialFeed",
    "Deny",
    "DraftLine",
    "ExecIO",
    "Feed",
    "Forwarding",
    "Found",
    "HeldForward",
    "HostSeen",
    "How",
    "Leak",
    "Losses",
    "Made",
    "NotLooked",
    "Operation",
    "Outbound",
    "Paths",
    "Plan",
    "Planned",
    "Preset",
    "Quarantined",
    "Replayed",
    "SecretDefinition",
    "SecretDefinitions",
    "SecretInfo",
    "SecretSource",
    "Secrets",
    "ShellSession",
    "Span",
    "Subscription",
    "Tally",
    "Template",
    "Templates",
    "Traffic",
    "TuiOptions",
    "WriteFailed",
    "attach",
    "cause",
    "change_to",
    "check_configuration",
    "differing",
    "find_paths",
    "fixed_fields",
    "forward",
    "has_gateway",
    "judge",
    "keep_evidence",
    "known_ground",
    "last_names",
    "load",
    "load_presets",
    "make_bundle",
    "open_bundle",
    "open_console",
    "plan_quarantine",
    "preload",
    "quarantine",
    "read_draft",
    "release",
    "replay",
    "same_template",
    "spec_of",
    "timeline",
    "verify_bundle",
    "write_draft",
]
