"""Reads the Templates and WarmPools of a cluster, and lists them as what sandboxes are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from sandbox_console.backends.kubernetes import claims, lists
from sandbox_console.backends.kubernetes.causes import seconds
from sandbox_console.backends.kubernetes.claims import EXTENSIONS, POOLS, TEMPLATES, Pool, Template
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.failures import Forbidden
from sandbox_console.backends.kubernetes.objects import Meta
from sandbox_console.backends.kubernetes.translate import BACKEND
from sandbox_console.errors import BackendError, InvalidSpec, NotFound
from sandbox_console.model.image import Image

T = TypeVar("T")


async def images(cluster: Cluster) -> Sequence[Image]:
    """Each Template as ``template:NAME``, and each WarmPool as ``pool:NAME``, with the sandboxes of the pool."""
    templates, pools = await asyncio.gather(
        _all(cluster, TEMPLATES, claims.template), _all(cluster, POOLS, claims.pool)
    )
    host = cluster.scope.host
    return [
        *(_image(host, "template", one.metadata, "") for one in templates),
        *(_image(host, "pool", one.metadata, _readiness(one)) for one in pools),
    ]


def _image(host: str, prefix: str, meta: Meta, needed: str) -> Image:
    made = seconds(meta.creation_timestamp)
    return Image(BACKEND, host, meta.uid, (f"{prefix}:{meta.name}",), created_at=made, needed=needed)


def _readiness(pool: Pool) -> str:
    wanted = 1 if pool.spec.replicas is None else pool.spec.replicas
    return f"{pool.status.ready_replicas} of {wanted} ready, of {pool.spec.sandbox_template_ref.name}"


async def _all(cluster: Cluster, kind: str, decode: Callable[[bytes], T]) -> Sequence[T]:
    path = await cluster.extensions(kind)
    try:
        found, _ = await lists.pages(cluster, path, (), f"list {kind}.{EXTENSIONS}", decode)
    except NotFound:
        return ()
    return found


async def template(cluster: Cluster, name: str) -> Template:
    """A Template. Raises InvalidSpec if there is none."""
    return await _one(cluster, TEMPLATES, name, claims.template)


async def template_of_pool(cluster: Cluster, name: str) -> Template | None:
    """The Template of a WarmPool; None if this login may not read it. Raises InvalidSpec if there is none."""
    try:
        pool = await _one(cluster, POOLS, name, claims.pool)
        return await template(cluster, pool.spec.sandbox_template_ref.name)
    except Forbidden:
        return None


async def _one(cluster: Cluster, kind: str, name: str, decode: Callable[[bytes], T]) -> T:
    path = await cluster.extensions(kind, name, namespace=cluster.namespace)
    request = f"get {kind}.{EXTENSIONS} {cluster.namespace}/{name}"
    try:
        return decode(await cluster.call("GET", path, request))
    except NotFound:
        raise InvalidSpec({"image": f"the namespace {cluster.namespace} has no {kind[:-1]} {name!r}"}) from None
    except msgspec.DecodeError as error:
        raise BackendError(f"{request}: the answer cannot be read: {error}") from None
