"""Checks that an allowlist lets through what it names and nothing else, and that each attempt is reported."""

from __future__ import annotations

import re

import pytest

from sandbox_console.backends.abilities import Egress
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.testing.conformance.deny_all import REACH, guests, listening, needs_tools
from sandbox_console.testing.conformance.rig import Checks, Rig, eventually

_NAMED, _OTHER = "named.example.com", "other.example.com"
# A request for a page, through the proxy in the guest's environment if there is one, else direct.
_ASK = r"""
ask() {
    place=${http_proxy#http://}; place=${place%/}
    test -n "$place" || place="$1:$2"
    line="GET http://$1:$2/ HTTP/1.1\r\nHost: $1:$2\r\nConnection: close\r\n\r\n"
    if command -v nc >/dev/null; then printf "$line" | nc -w 3 "${place%:*}" "${place##*:}"
    else timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1"; printf "$2" >&3; cat <&3' "${place%:*}" "${place##*:}" "$line"; fi
}
"""


class Allowlist(Checks):
    async def test_an_allowlist_lets_through_what_it_names_and_no_more(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EGRESS_ALLOWLIST)
        if rig.profile.outside is None:
            pytest.skip("the profile names nothing outside that its gateways can reach")
        named, other, address = rig.profile.outside
        async with listening(rig) as listener:
            ref = await _made(rig, f"{named}:{listener.port}", f"{address}:{listener.port}")
            await _ask(rig, ref, other, listener.port)
            assert not await guests(rig, listener), "a name that is not on the list is let through"

            async def through() -> bool:
                await _ask(rig, ref, named, listener.port)
                return listener.reached > 0

            await eventually(through, "the name on the list is not let through")

    async def test_a_rule_that_is_taken_back_holds_no_more(self, rig: Rig) -> None:
        rig.needs(Capability.EGRESS_ALLOWLIST)
        gateway = rig.ability(Egress, Capability.EGRESS_UPDATE)
        ref = await _made(rig, _NAMED)
        assert (await gateway.probe_egress(await rig.permit("probe"), ref, _NAMED, 443)).allowed
        await gateway.set_egress(await rig.permit("egress"), ref, [EgressRule(_OTHER)])

        async def changed() -> bool:
            probed = [await gateway.probe_egress(await rig.permit("probe"), ref, one, 443) for one in (_NAMED, _OTHER)]
            return [one.allowed for one in probed] == [False, True]

        await eventually(changed, "the new rules are not in force")
        assert [one.pattern for one in (await gateway.egress(ref)).rules] == [_OTHER]

    async def test_what_is_refused_is_on_record(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EGRESS_ALLOWLIST)
        gateway = rig.ability(Egress, Capability.EGRESS_RECORDS)
        ref = await _made(rig, _NAMED)
        await _ask(rig, ref, _OTHER, 80)

        async def told() -> bool:
            found = [one async for one in gateway.egress_records(ref, since=None, follow=False)]
            return any(one.host == _OTHER and not one.allowed for one in found)

        await eventually(told, "the refusal of a host is not reported")

    async def test_an_allowlist_is_no_way_past_its_gateway(self, rig: Rig) -> None:
        rig.needs_sh(Capability.EGRESS_ALLOWLIST)
        async with listening(rig) as listener:
            ref = await _made(rig, _NAMED)
            places = " ".join(dict.fromkeys(("127.0.0.1", *listener.addresses[:6])))
            straight = f"for a in {places}; do tcp $a PORT & udp $a PORT & ask $a PORT & done; wait"
            await rig.sh(ref, re.sub("PORT", str(listener.port), f"{REACH}{_ASK}{straight}"))
            assert not await guests(rig, listener), "the guest came past the gateway"


async def _made(rig: Rig, *egress: str) -> SandboxRef:
    ref = await rig.make(egress=egress)
    await needs_tools(rig, ref)
    return ref


async def _ask(rig: Rig, ref: SandboxRef, host: str, port: int) -> None:
    await rig.sh(ref, f"{_ASK}\nask {host} {port}")
