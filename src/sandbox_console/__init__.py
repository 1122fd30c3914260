"""The console for the sandboxes that AI agents and developers run code in.

Programs begin with ``open_console``; ``sandbox_console.sync`` has the same calls without asyncio. The names are those
of ``sandbox_console.library``, and they are stable: see docs/python.md. The library is imported when one of them is
first used, so that it does not slow down the start of commands.
"""

from __future__ import annotations

from sandbox_console.version import __version__ as __version__

TYPE_CHECKING = False  # importing typing costs 8 ms of each command
if TYPE_CHECKING:
    from sandbox_console.library import *  # noqa: F403 - the one list of names is there
    from sandbox_console.library import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        # Other lower-case names are modules and attributes of modules. Looking one up must not import the library.
        if name.islower() and name not in ("__all__", "open_console"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import sandbox_console.library as library  # noqa: PLR0402 - `from` would ask this function for the name

        if name != "__all__" and name not in library.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(library, name)
        return found

    def __dir__() -> list[str]:
        from sandbox_console.library import __all__

        return sorted({*globals(), *__all__})
