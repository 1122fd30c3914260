"""Decides about an action in a pure function, with the same answer for every face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from sandbox_console.model import hosts, ports
from sandbox_console.model.action import Action, ChangeEgress, Create, Forward, OpenShell, Update
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.egress import Effect
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy import required_capabilities
from sandbox_console.policy.roles import watches
from sandbox_console.policy.rules import Allow, Ask, Decision, Deny, Rules

_UNENFORCED = '--limits best-effort (in a spec: limits = "best-effort") accepts it unenforced'


def decide(
    action: Action,
    rules: Rules,
    capabilities: Capabilities,
    *,
    target: Sandbox | None = None,
    injects: Mapping[str, str] | None = None,
) -> Decision:
    """Decide whether an action may be carried out.

    ``target`` is the sandbox that the action is about (None for a create); ``injects`` says how each secret of the
    configuration is handed over. A Deny for a missing capability names the capability. What the rules forbid is checked
    first.
    """
    denied = _forbidden(action, rules) or _incapable(action, capabilities, injects or {})
    if denied:
        return denied
    return _question(action, rules, target) or Allow()


def _forbidden(action: Action, rules: Rules) -> Deny | None:
    if rules.read_only and not watches(action):
        return Deny("the console is read-only", "policy.read_only", hint="start it without --read-only")
    if action.verb in rules.deny:
        return Deny(f"the policy denies {action.verb}", "policy.deny")
    if isinstance(action, (Create, Update)):
        return _spec_forbidden(action.spec, rules)
    if isinstance(action, OpenShell) and action.keep and not rules.keep_shells:
        hint = "leave --keep out, or set keep_shells = true in the policy"
        return Deny("the policy does not allow kept shells", "policy.keep_shells", hint=hint)
    if isinstance(action, Forward):  # a port that may not be published may not be forwarded either
        return _ports_forbidden([str(action.published)], rules)
    if isinstance(action, ChangeEgress):  # the ceiling also holds for what is opened later
        return _egress_forbidden([rule.pattern for rule in action.add if rule.effect is Effect.ALLOW], rules)
    return None


def _spec_forbidden(spec: SandboxSpec, rules: Rules) -> Deny | None:
    if not any(fnmatchcase(spec.image, pattern) for pattern in rules.images):
        return Deny(f"image {spec.image!r} matches none of {', '.join(rules.images)}", "policy.images")
    for field, cap in (("cpus", rules.max_cpus), ("memory_mib", rules.max_memory_mib), ("pids", rules.max_pids)):
        requested = getattr(spec, field)
        if cap is not None and requested is not None and requested > cap:
            return Deny(f"{field} {requested:g} is above the maximum of {cap:g}", f"policy.max_{field}")
        if cap is not None and requested is None and rules.require_limits:
            return Deny(f"{field} is not set, and the policy requires it", "policy.require_limits")
    return _calls_forbidden(spec, rules) or _egress_forbidden(spec.egress, rules) or _ports_forbidden(spec.ports, rules)


def _calls_forbidden(spec: SandboxSpec, rules: Rules) -> Deny | None:
    """Deny a spec without a filter of system calls, as its guest can then reach more of the host's kernel."""
    if spec.seccomp == "off" and not rules.seccomp_off:
        hint = "leave seccomp out, or set seccomp_off = true in the policy"
        return Deny("the policy requires the system call filter", "policy.seccomp_off", hint=hint)
    if spec.ptrace and not rules.ptrace:
        hint = "leave ptrace out, or set ptrace = true in the policy"
        return Deny("the policy does not allow ptrace", "policy.ptrace", hint=hint)
    if spec.nested_userns and not rules.nested_userns:
        hint = "leave nested_userns out, or set nested_userns = true in the policy"
        return Deny("the policy does not allow user namespaces", "policy.nested_userns", hint=hint)
    return None


def _ports_forbidden(texts: Sequence[str], rules: Rules) -> Deny | None:
    """Deny published ports, as anybody who reaches one talks to a guest, and the guest to them."""
    if texts and rules.publish == "none":
        return Deny("the policy does not allow published ports", "policy.publish")
    for text in texts if rules.publish == "loopback" else ():
        try:
            open_to_others = not ports.parse(text).loopback
        except ValueError as error:
            return Deny(str(error), "policy.publish")
        if open_to_others:
            hint = 'leave the address out, or set publish = "any" in the policy'
            return Deny(f"port {text!r} could be reached from other machines", "policy.publish", hint=hint)
    return None


def _egress_forbidden(patterns: Sequence[str], rules: Rules) -> Deny | None:
    if rules.egress is None:
        return None
    ceiling = [hosts.parse(text, allow_ip=rules.egress_ip) for text in rules.egress]
    for pattern in patterns:
        try:
            host_pattern = hosts.parse(pattern, allow_ip=rules.egress_ip)
        except ValueError as error:
            return Deny(str(error), "policy.egress")
        if not any(hosts.covers(allowed, host_pattern) for allowed in ceiling):
            return Deny(f"egress to {pattern!r} is not covered by the policy", "policy.egress")
    return None


def _incapable(action: Action, capabilities: Capabilities, injects: Mapping[str, str]) -> Deny | None:
    verb = required_capabilities.of_verb(action)
    wanted = [("", verb)] if verb else []
    if isinstance(action, (Create, Update)):
        wanted += required_capabilities.of_spec(action.spec, injects)
    for field, capability in wanted:
        if not capabilities.has(capability):
            requirement = f"{field}: {capability}" if field else str(capability)
            hint = _UNENFORCED if field in required_capabilities.LIMITS else ""
            reason = f"{requirement} is unsupported here: {capabilities.reason(capability)}"
            return Deny(reason, "capability", str(capability), hint)
    return None


def _question(action: Action, rules: Rules, target: Sandbox | None) -> Decision | None:
    if target is not None and not target.managed and rules.foreign != "allow":
        reason = f"{target.name} was not made by this console"
        if rules.foreign == "deny":
            return Deny(reason, "policy.foreign")
        return Ask(reason, "policy.foreign", token=target.ref.id)
    return Ask(f"the policy asks before {action.verb}", "policy.ask") if action.verb in rules.ask else None
