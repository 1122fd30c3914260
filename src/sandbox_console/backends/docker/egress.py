"""The ability ``Egress`` of one engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_console.backends import gateway_rules
from sandbox_console.backends.base import Progress
from sandbox_console.backends.common.permit import need
from sandbox_console.backends.docker import executor
from sandbox_console.backends.docker.abilities import Abilities
from sandbox_console.backends.docker.failures import about
from sandbox_console.backends.docker.gateway_config import PORT, RUN
from sandbox_console.backends.docker.gateways import proxy_of, token_of
from sandbox_console.backends.docker.labels import claims, gateway_name, image_labels, own_labels
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.backends.docker.podman_dialect import in_dockers_words, is_podman
from sandbox_console.egress import ask
from sandbox_console.egress.records import follow as following
from sandbox_console.errors import BackendError
from sandbox_console.model.action import Exec, Permit
from sandbox_console.model.egress import EgressRecord, EgressRule, EgressState, EgressVerdict
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef

if TYPE_CHECKING:
    from sandbox_console.backends.docker.gateways import Gateways

_ANSWER_S = 20.0


class EgressAbilities(Abilities):
    """Egress through gateways; mixed into DockerBackend."""

    _gateways: Gateways

    async def egress(self, ref: SandboxRef) -> EgressState:
        token = await self._proxy(ref)
        if not token:
            return EgressState()
        reason = await self._gateways.state(await self._engine(), token)
        return await asyncio.to_thread(gateway_rules.state, self._gateways.folder(token), (), reason)

    async def set_egress(self, permit: Permit, ref: SandboxRef, rules: Sequence[EgressRule]) -> None:
        need(permit)
        folder = self._gateways.folder(await self._needed(ref))
        await asyncio.to_thread(gateway_rules.put, folder, rules)

    async def publish(self, permit: Permit, ref: SandboxRef, published: bool) -> None:
        """Its gateway publishes its ports, so that is stopped and started; egress is denied in the meantime."""
        need(permit)
        engine = await self._engine()
        with about(described(ref.id)):
            data = await engine.call("GET", container_path(ref.id, "json"))
        token = token_of(data)
        if not token:
            raise BackendError(f"{described(ref.id)} has no gateway that publishes its ports")
        await (self._gateways.start(engine, token, data) if published else self._gateways.stop(engine, token))

    async def probe_egress(self, permit: Permit, ref: SandboxRef, host: str, port: int) -> EgressVerdict:
        need(permit)
        token = await self._needed(ref)
        engine = await self._engine()
        if reason := await self._gateways.state(engine, token):
            raise BackendError(f"{described(ref.id)}: {reason}")
        # It runs in the gateway's container, at its address for the sandbox, as the sandbox's image may lack a program.
        gateway = SandboxRef(ref.backend, ref.host, gateway_name(token))
        argv = (*RUN, "ask", "--at", f"{await self._door(token)}:{PORT}", "--", host, str(port))
        process = await executor.start_command(engine, Exec(gateway, argv), ())
        output = {Stream.STDOUT: b"", Stream.STDERR: b""}
        async with asyncio.timeout(_ANSWER_S):
            async for stream, data in process.output():
                output[stream] += data
            code = (await process.wait()).code
        try:
            return ask.parse(json.loads(output[Stream.STDOUT]))
        except ValueError as error:
            lines = output[Stream.STDERR].decode("utf-8", "replace").splitlines()
            reason = lines[-1] if lines else f"exit code {code}"
            raise BackendError(f"the gateway of {described(ref.id)} does not answer: {reason}") from error

    async def egress_records(
        self, ref: SandboxRef, *, since: float | None, follow: bool
    ) -> AsyncIterator[EgressRecord]:
        if folder := await self.egress_folder(ref):
            async with aclosing(following(folder, since, follow)) as records:
                async for record in records:
                    yield record

    async def egress_folder(self, ref: SandboxRef) -> Path | None:
        token = await self._proxy(ref)
        return self._gateways.folder(token) / "records" if token else None

    async def pull_image(self, permit: Permit, name: str, progress: Progress) -> str:
        pulled = await super().pull_image(permit, name, progress)
        await self._gateways.look()  # the problem may be the gateway's
        return pulled

    async def _token(self, ref: SandboxRef) -> str:
        return token_of(await self._inspected(ref))

    async def _proxy(self, ref: SandboxRef) -> str:
        return proxy_of(await self._inspected(ref))

    async def _inspected(self, ref: SandboxRef) -> dict[str, Any]:
        engine = await self._engine()
        with about(described(ref.id)):
            data: dict[str, Any] = await engine.call("GET", container_path(ref.id, "json"))
        if is_podman(self._connection.info):
            data = in_dockers_words(data)
        config = data["Config"]
        if claims(config.get("Labels") or {}):
            image = await self._connection.history.image(engine, str(data.get("Image", "")))
            config["Labels"] = own_labels(config["Labels"], image_labels(image))
        return data

    async def _needed(self, ref: SandboxRef) -> str:
        data = await self._inspected(ref)
        if token := proxy_of(data):
            return token
        raise gateway_rules.needless(str(data["Name"]).lstrip("/"))

    async def _door(self, token: str) -> str:
        engine = await self._engine()
        data = await engine.call("GET", container_path(gateway_name(token), "json"))
        networks = data["NetworkSettings"]["Networks"]
        return str(networks[f"sandbox-console-{token}"]["IPAddress"])
