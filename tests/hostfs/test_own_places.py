"""What is the console's never becomes a guest's, whatever it is called; and what is a guest's is not used by the console."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandbox_console.errors import ConfigError, InvalidSpec, SecretError
from sandbox_console.hostfs import mounts
from sandbox_console.model.action import Create, Exec, Start, Update
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console
from sandbox_console.service.reads import shared_folders
from sandbox_console.service.reads.folder_guard import OwnFolders, without_guests_programs, workspace_problem
from sandbox_console.testing.fake_backend import FakeBackend

ROOT = os.geteuid() == 0


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An ordinary user's folders: configuration, state, an archive, a runtime folder and some work."""
    home = tmp_path / "home"
    for name in (".config/sandbox-console", ".local/state/sandbox-console/recordings", "work", "archive", "run"):
        (home / name).mkdir(parents=True)
    (home / ".config/sandbox-console/config.toml").write_text(f'[audit]\narchive = "{home}/archive"\n')
    for name in ("SANDBOX_CONSOLE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "SANDBOX_CONSOLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    return home


def spec(folder, image="host"):
    return SandboxSpec("box", image, workspace=str(folder))


async def refused(folder, **how):
    """Why a sandbox with that workspace is not made; its row says the same."""
    fake = FakeBackend([])
    async with open_console(backends=[fake], **how) as console:
        with pytest.raises(InvalidSpec) as told:
            await console.perform(Create(spec(folder), "fake", "local")).result()
        assert told.value.audit_id is not None
    assert not fake.sandboxes
    return told.value.problems["workspace"]


@pytest.mark.parametrize("name", [
    ".config/sandbox-console", ".config", ".config/sandbox-console/ws", ".local/state/sandbox-console", ".local",
    ".local/state/sandbox-console/recordings", "archive", "archive/2026", "run", "run/user", ".", "..", "../home/.local",
])  # fmt: skip
async def test_the_consoles_own_places_are_no_workspace(home, name):
    (home / name).mkdir(parents=True, exist_ok=True)
    assert "is, contains or is inside" in await refused(home / name) or name == ".."


@pytest.mark.parametrize("through", ["link", "chain", "dots"])
async def test_by_links(home, through):
    (home / "work/a").symlink_to("../.local/state" if through == "chain" else home / ".local/state/sandbox-console")
    (home / "work/b").symlink_to("a/sandbox-console")
    at = {"link": "work/a", "chain": "work/b", "dots": "work/../.config"}[through]
    assert "is, contains or is inside" in await refused(home / at)


async def test_parts_of_the_state_that_are_kept_elsewhere(home):
    (home / ".local/state/sandbox-console/recordings").rmdir()
    (home / "disk/recordings").mkdir(parents=True)
    (home / ".local/state/sandbox-console/recordings").symlink_to(home / "disk/recordings")
    assert "is, contains or is inside" in await refused(home / "disk")


@pytest.mark.skipif(not ROOT, reason="mounts need root")
@pytest.mark.parametrize("how", ["bind", "inside", "overlay"])
async def test_by_mounts(home, how):
    state, at = home / ".local/state/sandbox-console", home / "work/mnt"
    at.mkdir()
    tmpfs = home / "tmpfs"
    tmpfs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", tmpfs], check=True)
    (tmpfs / "u").mkdir()
    (tmpfs / "w").mkdir()
    overlay = ["-t", "overlay", "none", "-o", f"lowerdir={state},upperdir={tmpfs}/u,workdir={tmpfs}/w"]
    subprocess.run(["mount", *(overlay if how == "overlay" else ["--bind", state]), at], check=True)
    try:
        assert "is, contains or is inside" in await refused(home / "work" if how == "inside" else at)
    finally:
        subprocess.run(["umount", at, tmpfs], check=True)


async def test_a_config_that_is_named_is_not_a_guests(home, tmp_path):
    project = tmp_path / "project"
    (project / "ws").mkdir(parents=True)
    (project / "console.toml").write_text("")
    assert "configuration" in await refused(project, config_file=project / "console.toml")
    async with open_console(backends=[FakeBackend([])], config_file=project / "console.toml") as console:
        await console.perform(Create(spec(project / "ws"), "fake", "local")).result()
    (project / "ws/console.toml").write_text("[policy]\n")
    (project / "link.toml").symlink_to("ws/console.toml")
    for name in ("ws/console.toml", "link.toml"):
        with pytest.raises(ConfigError, match="which a sandbox can write"):
            async with open_console(backends=[], config_file=project / name):
                pass


async def test_the_home_folder_only_by_policy(home, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "apart"))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    (tmp_path / "alias").symlink_to(home)
    for folder in (home, tmp_path / "alias", home / "work/.."):
        assert "home folder" in await refused(folder)
    monkeypatch.setenv("SANDBOX_CONSOLE_POLICY__HOME_WORKSPACE", "true")
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        await console.perform(Create(spec(home), "fake", "local")).result()
        assert fake.sandboxes
    assert "is, contains or is inside" in await refused(tmp_path)


PRIVATE = [
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".microsandbox", ".config/gcloud", ".config/containers",
    ".config/gh", ".local/share/containers", ".local/share/docker", ".password-store", ".config/systemd", ".mozilla",
]  # fmt: skip


@pytest.fixture
def apart(home, tmp_path, monkeypatch):
    """A home whose configuration and state are elsewhere, so that they are no reason to refuse anything in it."""
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "apart"))
    for name in ("DOCKER_CONFIG", "GNUPGHOME", "MSB_HOME", "CLOUDSDK_CONFIG", "DOCKER_HOST", "TMUX", "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.mark.parametrize("name", PRIVATE)
async def test_keys_programs_and_engines_are_no_workspace_unless_the_policy_says_so(apart, monkeypatch, name):
    (apart / name / "inner").mkdir(parents=True)
    (apart / "work/link").symlink_to(apart / name)
    for folder in (name, f"{name}/inner", "work/link"):
        why = await refused(apart / folder)
        assert f"{apart / name}, w" in why
        assert "policy.home_workspace" in why
    if "/" in name:
        assert "is, contains or is inside" in await refused((apart / name).parent)
    monkeypatch.setenv("SANDBOX_CONSOLE_POLICY__HOME_WORKSPACE", "true")
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(Create(spec(apart / name), "fake", "local")).result()


@pytest.mark.parametrize(
    "variable", ["MSB_HOME", "GNUPGHOME", "CLOUDSDK_CONFIG", "AWS_SHARED_CREDENTIALS_FILE", "DOCKER_CONFIG"]
)
async def test_they_are_found_by_their_variables(apart, monkeypatch, variable):
    (apart / "work/keys").mkdir()
    monkeypatch.setenv(variable, str(apart / "work/keys"))
    assert "is, contains or is inside" in await refused(apart / "work")


@pytest.mark.parametrize(
    ("variable", "name"),
    [("XDG_CONFIG_HOME", "gh"), ("XDG_CONFIG_HOME", "systemd/user"), ("XDG_DATA_HOME", "keyrings")],
)
async def test_they_are_found_where_the_desktops_variables_point(apart, monkeypatch, variable, name):
    (apart / "work/moved" / name).mkdir(parents=True)
    monkeypatch.setenv(variable, str(apart / "work/moved"))
    for folder in ("work/moved", f"work/moved/{name}", "work"):
        assert "is, contains or is inside" in await refused(apart / folder)


@pytest.mark.parametrize("folder", ["/var/lib/docker", "/var/lib/containers/storage", "/var/lib/kubelet/pods"])
async def test_what_engines_of_the_machine_are_made_of_is_no_workspace(apart, folder):
    assert "where an engine keeps its sandboxes" in await refused(folder)


async def test_a_folder_beside_them_is_one(apart):
    (apart / ".config/other").mkdir()
    (apart / "src/.ssh").mkdir(parents=True)
    async with open_console(backends=[FakeBackend([])]) as console:
        for folder in (apart / ".config/other", apart / "src"):
            assert not await console.problems(spec(folder), "fake", "local")


@pytest.mark.parametrize("name", ["SSH_AUTH_SOCK", "TMUX", "DOCKER_HOST"])
async def test_a_socket_of_the_operators_is_in_no_workspace(home, monkeypatch, name):
    """A guest of an ordinary user's console has that user's uid, and a container's root is root."""
    at = home / "work/sockets/one"
    at.parent.mkdir()
    monkeypatch.setenv(name, {"TMUX": f"{at},1,0", "DOCKER_HOST": f"unix://{at}"}.get(name, str(at)))
    for folder in (home / "work", at.parent, at):
        assert "is, contains or is inside" in await refused(folder)
    assert "/docker.sock, an engine's socket" in await refused(Path("/run"))


async def test_the_folder_for_temporary_files_only_by_policy(home, monkeypatch):
    """The console's own ssh tunnels to engines listen there, and so do tmux and ssh-agent."""
    monkeypatch.setattr(tempfile, "tempdir", str(home / "work/tmp"))
    (home / "work/tmp").mkdir()
    monkeypatch.setenv("HOME", "/var/empty")
    assert "/tmp, where programs of yours keep sockets" in workspace_problem("/tmp", OwnFolders(home / "none"))
    monkeypatch.setenv("HOME", str(home))
    for folder in (home / "work", home / "work/tmp"):
        assert "where programs of yours keep sockets" in await refused(folder)
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        (home / "work/tmp/job").mkdir()
        await console.perform(Create(spec(home / "work/tmp/job"), "fake", "local")).result()
    monkeypatch.setenv("SANDBOX_CONSOLE_POLICY__HOME_WORKSPACE", "true")
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(Create(spec(home / "work/tmp"), "fake", "local")).result()


@pytest.mark.parametrize("given", [".", "..", ".local"])
async def test_another_tools_sandbox_with_the_home_folder_does_not_take_the_console_away(home, given):
    shares = home / ".local/state/sandbox-console/shares.json"
    shares.write_text(json.dumps({"docker/default": [str((home / given).resolve())]}))
    if given == ".local":
        with pytest.raises(ConfigError, match="which a sandbox can write"):
            async with open_console(backends=[]):
                pass
        return
    async with open_console(backends=[FakeBackend([])]) as console:
        assert (await console.ground()).roots, "links in it are still a guest's"


async def test_a_sandbox_from_before_is_not_started_or_changed(home):
    state = home / ".local/state/sandbox-console"
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        made = await console.perform(Create(spec(home / "work"), "fake", "local", start=False)).result()
        assert made.ref is not None
        (home / "work").rmdir()
        (home / "work").symlink_to(state)
        for action in (Start(made.ref), Update(made.ref, spec(home / "work"))):
            with pytest.raises(InvalidSpec, match="is, contains or is inside"):
                await console.perform(action).result()


async def test_what_was_given_is_known_until_it_is_gone(home, monkeypatch):
    from sandbox_console.model.action import Remove

    state = home / ".local/state/sandbox-console"
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        made = await console.perform(Create(spec(home / "work"), "fake", "local")).result()
        assert made.ref is not None
        assert shared_folders.everywhere(state).all == {str(home / "work")}
        assert [root.path for root in (await console.ground()).roots.values()] == [str(home / "work")]
        fake.faults.dead = True
        assert [root.path for root in (await console.ground()).roots.values()] == [str(home / "work")]
        fake.faults.dead = False
        await console.perform(Remove(made.ref, force=True)).result()
    assert shared_folders.everywhere(state).shared == set()


async def test_programs_and_state_where_a_guest_writes_are_not_used(home, monkeypatch):
    (home / "work/bin").mkdir()
    (home / "tools").symlink_to("work/bin")
    path = f"{home}/work/bin:/usr/bin:{home}/tools"
    assert without_guests_programs(path, [str(home / "work")]) == "/usr/bin"
    monkeypatch.setenv("PATH", path)
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        await console.perform(Create(spec(home / "work"), "fake", "local")).result()
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(home / "work/own"))
    with pytest.raises(ConfigError, match="state"):
        async with open_console(backends=[fake]):
            pass
    monkeypatch.delenv("SANDBOX_CONSOLE_HOME")
    async with open_console(backends=[fake]):
        assert os.environ["PATH"] == "/usr/bin"


async def test_an_image_that_a_guest_can_change_makes_no_sandbox(home):
    (home / "work/rootfs").mkdir()
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(Create(spec(home / "work"), "fake", "local")).result()
        second = SandboxSpec("second", f"dir:{home}/work/rootfs")
        with pytest.raises(InvalidSpec, match="which a sandbox can write"):
            await console.perform(Create(second, "fake", "local")).result()


def test_what_mounts_are_read_as(monkeypatch, tmp_path):
    layers = r"lowerdir=/a\134:b\134\054c:/d\134\134e,upperdir=/f:g"  # as Linux 6.18 writes it
    line = rf"36 35 98:0 /mnt1 /mnt\0402 rw,noatime master:1 - overlay /dev/root rw,{layers}"
    found = mounts._mount(line)
    assert (found.device, found.root, found.point) == ("98:0", "/mnt1", "/mnt 2")
    assert found.layers == ("/a:b,c", r"/d\e", "/f:g")
    assert workspace_problem(str(tmp_path), OwnFolders(tmp_path / "state")) == ""


async def test_a_secrets_file_that_a_guest_turned_into_a_link_is_not_read(home, monkeypatch):
    (home / "work/token").write_text("a-value-of-the-project")
    (home / "private").write_text("a-key-of-the-host")
    monkeypatch.setenv("SANDBOX_CONSOLE_SECRETS__TOKEN__FROM", f"'file:{home}/work/token'")
    monkeypatch.setenv("SANDBOX_CONSOLE_POLICY__ENTER_WITHOUT_SECRETS", "false")
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        action = Create(SandboxSpec("box", "host", workspace=str(home / "work"), secrets=("token",)), "fake", "local")
        made = await console.perform(action).result()
        assert made.ref is not None
        (home / "work/token").unlink()
        (home / "work/token").symlink_to(home / "private")
        with pytest.raises(SecretError, match="where a sandbox can write"):
            await console.perform(Exec(made.ref, ("true",))).result()


BY_VARIABLE = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "SSLKEYLOGFILE",
    "OPENSSL_CONF",
    "PGPASSFILE",
    "NETRC",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
)
IN_HOME = (".netrc", ".pgpass", ".postgresql/root.crt")


@pytest.mark.parametrize("how", ["in it", "relative", "by its link"])
@pytest.mark.parametrize("name", [*BY_VARIABLE, *IN_HOME])
async def test_no_library_reads_what_a_guest_can_write(home, monkeypatch, name, how):
    """With another authority in SSL_CERT_FILE, a guest's server would be trusted for every address."""
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(Create(spec(home / "work"), "fake", "local")).result()
    (home / "work/file").write_text("planted")
    (home / "safe").mkdir()
    (home / "safe/mine").write_text("the operator's")
    (home / "work/link").symlink_to(home / "safe/mine")
    target = home / ("work/link" if how == "by its link" else "work/file")
    if name in IN_HOME:
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).symlink_to(target)
    else:
        monkeypatch.chdir(home / "work")
        monkeypatch.setenv(name, "file" if how == "relative" else str(target))
    with pytest.raises(ConfigError, match=r"libraries of the console .* which a sandbox can write") as told:
        async with open_console(backends=[FakeBackend([])]):
            pass
    assert "where no sandbox writes" in told.value.hint
    if name in BY_VARIABLE:
        monkeypatch.setenv(name, str(home / "safe/mine"))
    else:
        (home / name).unlink()
    async with open_console(backends=[FakeBackend([])]) as console:
        told = workspace_problem(str(home / "safe"), console._shares._own)
        assert ("which libraries of the console" in told) is (name in BY_VARIABLE)


async def test_openssl_reads_no_configuration_of_a_guest(home, monkeypatch):
    """It names libraries to load, and is read with the first import of hashlib. A pipe in its place would block that."""
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(Create(spec(home / "work"), "fake", "local")).result()
    os.mkfifo(home / "work/openssl.cnf")
    (home / "mine.cnf").write_text("")
    env = os.environ | {"SANDBOX_CONSOLE_SERVER": "off", "OPENSSL_CONF": str(home / "work/openssl.cnf")}
    command = [sys.executable, "-m", "sandbox_console", "audit", "ls"]
    refused = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True, timeout=60)
    assert "OPENSSL_CONF, which libraries of the console use, lies in" in refused.stderr
    assert refused.returncode == 2
    env["OPENSSL_CONF"] = str(home / "mine.cnf")
    assert (await asyncio.to_thread(subprocess.run, command, env=env, timeout=60)).returncode == 0
