from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import sandbox_console

SOURCE = Path(sandbox_console.__file__).parent
FACES = ("cli", "tui", "web", "library", "sync", "servers", "adapters")


def trees(*rooms):
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE)
        if not rooms or inside.parts[0] in rooms:
            yield inside, ast.parse(path.read_text())


def test_a_permit_is_constructed_in_the_journal_alone():
    makers = set()
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                if name == "Permit" or (name in ("replace", "__new__") and "permit" in ast.unparse(node).lower()):
                    makers.add(str(path))
            if isinstance(node, ast.alias) and node.name == "Permit" and node.asname:
                makers.add(f"{path} renames it")
    assert makers == {"audit/journal.py"}


def test_every_changing_method_of_a_backend_takes_a_permit():
    from sandbox_console.backends.base import Backend

    reading = {"open", "close", "capabilities", "health", "list", "inspect", "watch", "logs", "stats", "validate"}
    [base] = [tree for path, tree in trees("backends") if path.name == "base.py"]
    [protocol] = [node for node in base.body if isinstance(node, ast.ClassDef) and node.name == "Backend"]
    methods = {node.name: node for node in protocol.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert set(methods) == {
        name for name in vars(Backend) if not name.startswith("_") and callable(getattr(Backend, name))
    }
    for name in methods.keys() - reading:
        assert ast.unparse(methods[name].args.args[1].annotation) == "Permit", name


def test_no_face_imports_a_backend_or_the_audit_log():
    for path, tree in trees(*FACES):
        for node in ast.walk(tree):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [f"{node.module}.{a.name}" for a in node.names] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert not name.startswith(("sandbox_console.backends", "sandbox_console.audit")), f"{path}: {name}"


def test_nothing_is_imported_by_name_but_in_the_registry_and_the_entry_point():
    for path, tree in trees():
        if str(path) in ("backends/registry.py", "__main__.py"):
            continue
        for node in ast.walk(tree):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            assert name not in ("import_module", "__import__", "entry_points"), path


BACKENDS = [
    "a2a",
    "a3s",
    "bubblewrap",
    "daytona",
    "docker",
    "e2b",
    "kubernetes",
    "microsandbox",
    "microsandbox_legacy",
    "opensandbox",
    "podman",
]


def test_the_fake_is_not_registered():
    from sandbox_console.backends import registry

    assert sorted(registry.available()) == BACKENDS


def test_listing_backends_imports_no_sdk_and_no_screen():
    code = (
        "import sys; from sandbox_console.backends import registry; names = sorted(registry.available());"
        "heavy = [m for m in ('docker', 'aiodocker', 'aiohttp', 'microsandbox', 'kubernetes_asyncio', 'textual', 'rich') if m in sys.modules];"
        "mine = [m for m in sys.modules if m.startswith('sandbox_console.backends.') and m.count('.') > 2];"
        "print(names, heavy, mine)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{BACKENDS} [] []\n"


def test_the_methods_that_are_checked_for_a_permit_are_those_that_take_one():
    from sandbox_console.backends.common.permit import CHANGING

    names = set()
    for path, tree in trees("backends"):
        if path.parts[1:] in (("base.py",), ("abilities.py",)):
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and "permit" in {
                    one.arg for one in node.args.args
                }:
                    names.add(node.name)
    assert names == CHANGING
    assert {"create", "upload", "download", "set_egress", "commit"} <= CHANGING


async def test_a_backend_of_anybody_is_held_to_its_permits():
    import pytest

    from sandbox_console.backends.abilities import Egress, EgressFiles, Files
    from sandbox_console.backends.base import Backend
    from sandbox_console.backends.common.permit import CHANGING, permitted
    from sandbox_console.service.reads.fleet import Fleet
    from sandbox_console.testing.fake_backend import FakeBackend

    fake = FakeBackend()
    held = await Fleet([fake]).use("fake", "local")
    assert isinstance(held, Backend)
    assert isinstance(held, Files)
    assert isinstance(held, Egress)
    assert not isinstance(held, EgressFiles)
    for name in CHANGING & set(dir(fake)):
        with pytest.raises(TypeError, match="Permit"):
            getattr(held, name)(None)
        with pytest.raises(TypeError, match="Permit"):
            getattr(held, name)(permit=None)
    assert fake.permits == []

    class Late(FakeBackend):
        def __getattr__(self, name):
            if name == "load_image":
                return lambda *_: "loaded"
            raise AttributeError(name)

    with pytest.raises(TypeError, match="Permit"):
        permitted(Late()).load_image(None)


def test_what_a_cancellation_must_not_split_is_awaited_in_one_way():
    found = {str(path) for path, tree in trees() for node in ast.walk(tree) if getattr(node, "attr", "") == "shield"}
    assert found == {"model/cancellation.py"}, "run_to_completion, wait_until_done and shielded are there for it"


def test_the_terminal_app_makes_a_persons_consent_in_one_place():
    made = {
        str(path)
        for path, tree in trees("tui")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Consent"
    }
    assert made == {"tui/actions/consent.py"}


def test_no_benchmark_hides_a_module_of_the_standard_library():
    """A script's folder stands first on its path: a copy.py there kept every one of them from starting."""
    names = {path.stem for path in (Path(__file__).parents[2] / "benchmarks").glob("*.py")}
    assert not names & sys.stdlib_module_names


def test_a_file_and_a_function_can_be_read_in_one_sitting():
    long = []
    for path, tree in trees():
        lines = len((SOURCE / path).read_text().splitlines())
        long += [f"{path}: {lines} lines"] if lines > 400 else []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno > 42:
                long.append(f"{path}: {node.name} has {node.end_lineno - node.lineno + 1} lines")
    assert not long


def test_no_docstring_begins_by_pointing_at_another():
    """A docstring that begins "The same" or "See" sends the reader elsewhere before it says anything."""
    found = [
        f"{path}: {getattr(node, 'name', 'the module')}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (ast.get_docstring(node) or "").startswith(("The same", "See "))
    ]
    assert found == []
