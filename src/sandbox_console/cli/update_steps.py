"""What an ``update`` does about one sandbox: its plan, what it loses, and carrying it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from sandbox_console.cli import json_output, losses
from sandbox_console.cli.context import Context
from sandbox_console.cli.create import follow
from sandbox_console.cli.spec_options import from_args, without
from sandbox_console.errors import InvalidSpec, Unsupported
from sandbox_console.model.action import Commit, Update
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import ActionResult, Consent, Console, How, Plan, differing, spec_of
from sandbox_console.service.reads.losses import Losses, kept_image


class Step(Struct, frozen=True):
    """What is done about one sandbox.

    ``losses`` are known if it is to be recreated. ``commits`` is why it cannot be committed; empty if it can.
    """

    found: Sandbox
    spec: SandboxSpec
    plan: Plan
    problems: Mapping[str, str] = {}
    losses: Losses | None = None
    commits: str = ""

    def refuse(self) -> None:
        """Raise InvalidSpec or Unsupported if it cannot be done."""
        if self.problems:
            raise InvalidSpec(dict(self.problems))
        for change in self.plan.changes:
            if change.how is How.UNSUPPORTED:
                raise Unsupported(f"{change.field} cannot be changed: {change.reason}")


async def planned(context: Context, console: Console, ref: Sandbox, given: dict[str, Any], *, look: bool) -> Step:
    """Plan the update of a sandbox. With ``look``, also find what is wrong with it and what would be lost."""
    found = await console.inspect(ref.ref)
    spec = from_args(context.args, without(spec_of(found).to_dict(), context.args.unset) | given)
    spec = structs.replace(spec, name=context.args.rename) if context.args.rename is not None else spec
    step = Step(found, spec, await console.plan(found, spec))
    able = await console.capabilities(found.ref.backend, found.ref.host)
    if not able.has(Capability.COMMIT):
        step = structs.replace(step, commits=able.reason(Capability.COMMIT))
    if context.args.commit and step.commits and step.plan.how is How.RECREATE:
        raise Unsupported(f"{found.name} cannot be committed: {step.commits}", hint="copy its files out: cp")
    if not look:
        return step
    problems = await console.problems(spec, found.ref.backend, found.ref.host)
    problems = differing(found, spec, problems) if found.spec is None else problems
    lost = await console.losses(found) if step.plan.how is How.RECREATE else None
    return structs.replace(step, problems=problems, losses=lost)


async def carry_out(context: Context, console: Console, step: Step, consent: Consent) -> tuple[ActionResult, str]:
    """Do one step. Returns the result, and the name of the image that was committed before."""
    image = ""
    if context.args.commit and step.plan.how is How.RECREATE:
        image = kept_image(step.found.name, context.now())
        await follow(context, console.perform(Commit(step.found.ref, image), consent=consent))
    return await follow(context, console.perform(Update(step.found.ref, step.spec), consent=consent)), image


def record(step: Step, **more: Any) -> dict[str, Any]:
    """A step for JSON, with ``more`` fields."""
    return {"name": step.spec.name, "ref": str(step.found.ref), "audit_id": None} | more | json_output.plan(step.plan)


def lost(step: Step) -> Sequence[str]:
    """What is lost, in lines for people; empty if it is not recreated."""
    return losses.lines(step.losses, step.found, step.commits) if step.losses else ()
