"""The conformance suite for backends: subclass it, override ``backend`` and ``profile``, and inherit the checks.

::

    class TestMine(BackendConformance):
        @pytest.fixture
        async def backend(self):
            backend = MyBackend(...)
            await backend.open()
            yield backend
            await backend.close()

        @pytest.fixture
        def profile(self):
            return Profile("mine", lambda name: SandboxSpec(name, image="busybox", command=("sleep", "1000")))

Checks require capabilities, never vendors: if one is missing, the check is skipped with the backend's own reason.
``known_gaps`` maps a check's name to a reason. The check is then expected to fail, and passing is a failure.
"""

from sandbox_console.testing.conformance.allowlist import Allowlist
from sandbox_console.testing.conformance.commands import Commands
from sandbox_console.testing.conformance.deny_all import DenyAll
from sandbox_console.testing.conformance.errors import Errors
from sandbox_console.testing.conformance.files import Files
from sandbox_console.testing.conformance.images import Images
from sandbox_console.testing.conformance.inspection import Looks
from sandbox_console.testing.conformance.leftovers import Leaving
from sandbox_console.testing.conformance.lifecycle import Lifecycle
from sandbox_console.testing.conformance.logs import Logs
from sandbox_console.testing.conformance.ports import Ports
from sandbox_console.testing.conformance.promises import Promises
from sandbox_console.testing.conformance.reads import Reading
from sandbox_console.testing.conformance.rig import Profile, Rig
from sandbox_console.testing.conformance.shells import Shells
from sandbox_console.testing.conformance.walls import Walls


class BackendConformance(
    Lifecycle,
    Commands,
    Logs,
    Shells,
    Files,
    Looks,
    Images,
    Reading,
    Walls,
    Promises,
    DenyAll,
    Allowlist,
    Ports,
    Errors,
    Leaving,
):
    """All checks."""


__all__ = ["BackendConformance", "Profile", "Rig"]
