from __future__ import annotations

import json

import pytest

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.podman import PodmanProvider, connections
from sandbox_console.backends.podman.connections import default_connections, resolve
from sandbox_console.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("CONTAINER_HOST", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(connections, "SYSTEM_SOCKET", str(tmp_path / "system.sock"))
    return tmp_path


def hosts(tmp_path, **options):
    return [one.host for one in PodmanProvider.backends(BackendSettings(tmp_path, options))]


def test_a_machine_without_podman_has_no_row_of_it(tmp_path):
    assert default_connections() == [] == hosts(tmp_path)


def test_each_socket_that_is_there_is_a_host(home):
    (home / "run" / "podman").mkdir(parents=True)
    (home / "run" / "podman" / "podman.sock").touch()
    assert hosts(home) == ["user"]
    (home / "system.sock").touch()
    assert hosts(home) == ["system", "user"]
    assert resolve("user").socket == str(home / "run/podman/podman.sock")
    assert resolve("system").socket == str(home / "system.sock")


def test_the_environment_wins_as_for_podman_itself(home, monkeypatch):
    (home / "system.sock").touch()
    monkeypatch.setenv("CONTAINER_HOST", "unix:///run/other.sock")
    assert hosts(home) == ["default"]
    assert resolve("default").socket == "/run/other.sock"


@pytest.mark.parametrize("newer", [True, False])
def test_a_stored_connection_is_read_in_both_forms(home, newer):
    folder = home / ".config" / "containers"
    folder.mkdir(parents=True)
    url = "ssh://me@far:2222/run/user/1000/podman/podman.sock"
    if newer:
        text = json.dumps({"Connection": {"Default": "far", "Connections": {"far": {"URI": url}}}})
        (folder / "podman-connections.json").write_text(text)
    else:
        (folder / "containers.conf").write_text(f'[engine]\n[engine.service_destinations.far]\nuri = "{url}"\n')
    assert hosts(home, connections=["far", "user"]) == ["far", "user"]
    assert resolve("far").ssh
    assert resolve("far").url == url
    with pytest.raises(ConfigError, match="no podman connection is called 'near'") as caught:
        resolve("near")
    assert "podman system connection ls" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "",
        "unix://",
        "unix://relative/x",
        "http://x:80",
        "tcp://x",
        "ssh://x",
        "ssh://me:password@x/run/p.sock",
        "ssh://x:0/p",
    ],
)
def test_an_address_that_cannot_be_used_is_told(home, monkeypatch, url):
    folder = home / ".config" / "containers"
    folder.mkdir(parents=True)
    (folder / "containers.conf").write_text(f'[engine.service_destinations.odd]\nuri = "{url}"\n')
    with pytest.raises(ConfigError):
        resolve("odd")


@pytest.mark.parametrize("text", ["[engine", "[engine]\nservice_destinations = 3\n", "engine = []\n"])
def test_a_damaged_file_is_named(home, text):
    folder = home / ".config" / "containers"
    folder.mkdir(parents=True)
    (folder / "containers.conf").write_text(text)
    with pytest.raises(ConfigError, match=r"containers\.conf|no podman connection"):
        resolve("odd")


@pytest.mark.parametrize(
    "options", [{"connections": []}, {"connections": "user"}, {"connections": ["a", "a"]}, {"conections": ["a"]}]
)
def test_a_wrong_option_is_refused(tmp_path, options):
    with pytest.raises(ConfigError):
        hosts(tmp_path, **options)
