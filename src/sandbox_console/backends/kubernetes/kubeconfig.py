"""Reads a context of a kubeconfig, or the account of a Pod. Nothing here shows a token, a key or a file's content.

A kubeconfig may name a program that fetches a token. It runs as the user, so such a file is read only if nobody else
and no guest could have written it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox_console.backends.kubernetes.failures import Unusable
from sandbox_console.backends.kubernetes.scope import IN_CLUSTER, Scope
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.owners import another_hand
from sandbox_console.hostfs.walk import led_by

_INSTALL = "pip install 'sandbox-console-tui[kubernetes]'"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PROGRAMS: dict[str, tuple[str, ...]] = {
    "the program of exec": ("exec", "command"),
    "the program of its provider": ("auth-provider", "config", "cmd-path"),
}
_LOGIN_S = 20.0
"""Programs that fetch tokens ask servers of their own."""


class Login(Struct, frozen=True):
    """How to reach a cluster: the SDK's ``Configuration``, and the namespace that is used if none is named."""

    configuration: Any
    namespace: str


async def login(scope: Scope) -> Login:
    """Read the kubeconfig. Raises Unusable if there is none, it cannot be trusted, or the SDK is missing."""
    await asyncio.to_thread(_imported)
    try:
        async with asyncio.timeout(_LOGIN_S):
            return await (_in_cluster() if scope.context == IN_CLUSTER else _from_file(scope))
    except TimeoutError:
        raise Unusable(
            f"the login of context {scope.context!r} took more than {_LOGIN_S:g} s",
            hint=f"run it by hand: kubectl --context {scope.context} get pods",
        ) from None


def _imported() -> None:
    """Import the SDK, in 0.7 s. Raises Unusable if it is not installed."""
    try:
        import kubernetes_asyncio.config  # noqa: F401
    except ImportError:
        raise Unusable("the package kubernetes_asyncio is not installed", hint=_INSTALL) from None
    for name in ("kubernetes_asyncio", "client", "asyncio_client"):
        logger = logging.getLogger(name)  # it would write a login program's errors over the screen
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


async def _in_cluster() -> Login:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException, load_incluster_config

    configuration = Configuration()
    try:
        await asyncio.to_thread(load_incluster_config, client_configuration=configuration)
        namespace = await asyncio.to_thread((_ACCOUNT / "namespace").read_text)
    except (ConfigException, OSError):
        hint = "in-cluster is for a console that runs in a Pod with a service account; name a context instead"
        raise Unusable(f"there is no service account in {_ACCOUNT}", hint=hint) from None
    return Login(configuration, namespace.strip() or "default")


async def _from_file(scope: Scope) -> Login:
    from kubernetes_asyncio.client import Configuration

    loader = await asyncio.to_thread(_loader, scope)
    configuration = Configuration()
    try:
        await loader.load_and_set(configuration)
    except Exception as error:  # the SDK raises what its parsers and the login program raise
        if isinstance(error, asyncio.CancelledError):
            raise
        raise Unusable(
            f"context {scope.context!r} gives no login ({type(error).__name__})",
            hint=f"kubectl --context {scope.context} get pods shows why",
        ) from None
    if runs_program(loader):
        configuration.refresh_api_key_hook = _refreshing(loader)
    context = (loader.current_context or {}).get("context") or {}
    return Login(configuration, str(context.get("namespace") or "default"))


def _refreshing(loader: Any) -> Any:
    """A new token where the old one is over; the loader runs its program only then."""

    async def refresh(configuration: Any) -> None:
        await loader.load_from_exec_plugin()
        if hasattr(loader, "token"):
            configuration.api_key["BearerToken"] = loader.token

    return refresh


def _loader(scope: Scope) -> Any:
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

    paths, ground = files(scope.kubeconfig), scope.guests()
    for path in paths:
        _refuse_writable(path, ground)
    merged = _merged(paths)
    known = [str(one.value["name"]) for one in merged["contexts"] or ()]
    if scope.context not in known:
        raise Unusable(
            f"no context is called {scope.context!r}",
            hint=f"there is: {', '.join(sorted(known)) or 'none'} (kubectl config get-contexts)",
        )
    try:
        loader = KubeConfigLoader(merged, active_context=scope.context, config_base_path=None)
        named = [*_named(loader)]
    except Exception as error:  # noqa: BLE001 - the SDK raises what its own reading of the parts raises
        raise _damaged(error) from None
    for what, path in named:
        if root := led_by(path, ground):
            raise Unusable(
                f"{path}, which context {scope.context!r} names as {what}, lies in {root}, which a sandbox can write",
                hint="keep it where no sandbox writes, and change the kubeconfig",
            )
    return loader


def _refuse_writable(path: Path, ground: GuestFolders) -> None:
    """Raise Unusable for a kubeconfig that a guest or another user can write."""
    if root := led_by(path, ground):
        raise Unusable(
            f"the kubeconfig {path} lies in {root}, which a sandbox can write, and it can name programs that run "
            "as you",
            hint="keep it where no sandbox writes: KUBECONFIG, or [backends.kubernetes] kubeconfig",
        )
    if why := another_hand(path):
        raise Unusable(
            f"the kubeconfig {path} is not used: {why}, and a kubeconfig can name programs that run as you",
            hint=f"make it yours alone: chown and chmod 600 {path}",
        )


def _named(loader: Any) -> Iterator[tuple[str, Path]]:
    """The files that a context names, and the program that fetches its token, as far as they have a path."""
    cluster, user = loader._cluster, loader._user  # noqa: SLF001 - the loader has no names of its own for them
    for node, keys in (
        (cluster, ("certificate-authority",)),
        (user, ("client-certificate", "client-key", "tokenFile")),
    ):
        for key in keys:
            if node is not None and (text := node.safe_get(key)):
                yield key, Path(node.path or "").absolute().parent / str(text)
    for what, path in _PROGRAMS.items():
        found = getattr(user, "value", None)
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, str) and "/" in found:
            yield what, Path(found).absolute()


def _merged(paths: Sequence[Path]) -> Any:
    from kubernetes_asyncio.config.kube_config import KubeConfigMerger

    try:
        merged = KubeConfigMerger(os.pathsep.join(map(str, paths))).config
    except OSError as error:
        raise Unusable(f"the kubeconfig cannot be read: {error.strerror}", hint=f"ls -l {paths[0]}") from None
    except Exception as error:  # noqa: BLE001 - a parser quotes the file, so its text is left out
        raise _damaged(error) from None
    if merged is None:
        places = ", ".join(map(str, paths))
        raise Unusable(f"there is no kubeconfig at {places}", hint="name one: [backends.kubernetes] kubeconfig")
    return merged


def _damaged(error: Exception) -> Unusable:
    return Unusable(
        f"the kubeconfig cannot be read ({type(error).__name__})", hint="kubectl config view shows what is wrong"
    )


def files(chosen: Path | None) -> list[Path]:
    """The files that are read: the chosen one, else those in ``KUBECONFIG``, else ~/.kube/config."""
    if chosen is not None:
        return [chosen]
    named = [Path(one).expanduser() for one in os.environ.get("KUBECONFIG", "").split(os.pathsep) if one]
    return named or [Path("~/.kube/config").expanduser()]


def runs_program(loader: Any) -> bool:
    """Whether the context's user has a program that fetches its token."""
    user = loader._user  # noqa: SLF001 - the loader has no name of its own for it
    return user is not None and "exec" in user
