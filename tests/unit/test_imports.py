"""What other tools have, read as specs: what is taken, what is left and why, and that hostile text only fails tidily."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_console.errors import ConsoleError, NotFound, UsageError
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.service.imports.compose import read_compose
from sandbox_console.service.imports.container import read_sandbox
from sandbox_console.service.imports.devcontainer import parse_jsonc, read_devcontainer
from sandbox_console.service.imports.docker_run import _FLAGS, _VALUES, read_docker_run
from sandbox_console.service.imports.imported import Imported
from sandbox_console.service.imports.interpolation import replace
from sandbox_console.service.imports.safe_yaml import parse_yaml

FOLDER = Path("/project")


def run(line: str) -> Imported:
    return read_docker_run(shlex.split(line), FOLDER)


def compose(text: str, service: str = "", environ: dict[str, str] | None = None, **files: str) -> Imported:
    def read(path: Path) -> str:
        try:
            return files[path.name.strip(".")]
        except KeyError:
            raise UsageError(f"{path} cannot be read") from None

    return read_compose(FOLDER / "compose.yaml", text, service, read, environ or {})


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("docker run alpine", {"image": "alpine"}),
        ("podman container run -it alpine sh -c 'a b'", {"image": "alpine", "command": ["sh", "-c", "a b"]}),
        ("/usr/bin/docker run -dit --rm=false alpine -e x", {"image": "alpine", "command": ["-e", "x"]}),
        ("-e A=1 -eB=2 --env=C=a=b alpine", {"image": "alpine", "env": {"A": "1", "B": "2", "C": "a=b"}}),
        ("-m 512m --cpus .5 --pids-limit 9 alpine", {"image": "alpine", "memory_mib": 512, "cpus": 0.5, "pids": 9}),
        ("-m 1073741824 alpine", {"image": "alpine", "memory_mib": 1024}),
        ("--memory 0 --pids-limit -1 alpine", {"image": "alpine"}),
        ("--entrypoint sh alpine -c ls", {"image": "alpine", "command": ["sh", "-c", "ls"]}),
        ("-p 80 -p 127.0.0.1:8080:80/tcp alpine", {"image": "alpine", "ports": ["80", "127.0.0.1:8080:80"]}),
        ("-v ./src:/workspace alpine", {"image": "alpine", "workspace": "/project/src"}),
        ("--mount type=bind,src=/a,dst=/workspace alpine", {"image": "alpine", "workspace": "/a"}),
        ("-w /app -v /a:/app alpine", {"image": "alpine", "workspace": "/a", "workdir": "/workspace"}),
        ("--read-only -u 1000:1000 -l a=b --runtime runsc alpine", {
            "image": "alpine", "read_only_root": True, "user": "1000:1000", "labels": {"a": "b"}, "runtime": "runsc",
        }),
        ("--security-opt seccomp=unconfined --network none --name box alpine", {
            "image": "alpine", "seccomp": "off", "name": "box",
        }),
        ("-- alpine --privileged", {"image": "alpine", "command": ["--privileged"]}),
    ],
)  # fmt: skip
def test_a_docker_run_line(line: str, fields: dict[str, object]) -> None:
    assert run(line).fields == fields


@pytest.mark.parametrize(
    ("line", "what", "why"),
    [
        ("alpine", "network", "any host"),
        ("--privileged alpine", "--privileged", "never privileged"),
        ("-e TOKEN=abc alpine", "--env TOKEN", "sounds secret"),
        ("-e HOME alpine", "--env HOME", "in the environment"),
        ("-v data:/data alpine", "--volume data:/data", "named volume"),
        ("-v /a:/a:ro alpine", "--volume /a:/a", "read-only"),
        ("-v /a:/workspace -v /b:/b alpine", "--volume /b:/b", "one workspace"),
        ("-p 53:53/udp alpine", "--publish 53:53/udp", "only TCP"),
        ("-p 1-9:1-9 alpine", "--publish 1-9:1-9", "range"),
        ("-p 8080:80 alpine", "--publish 8080:80", "127.0.0.1 only"),
        ("--gpus all alpine", "--gpus all", "devices"),
        ("--env-file /etc/shadow alpine", "--env-file /etc/shadow", "not read"),
        ("--dns 1.1.1.1 alpine", "--dns 1.1.1.1", "no field"),
        ("-v ~nosuchuser/x:/x alpine", "--volume ~nosuchuser/x:/x", "no path"),
        ("--cpus many alpine", "--cpus many", "not a number"),
        ("-m huge alpine", "--memory huge", "not a size"),
    ],
)
def test_what_a_docker_run_line_leaves(line: str, what: str, why: str) -> None:
    assert [reason for name, reason in run(line).left if name == what and why in reason], run(line).left


@pytest.mark.parametrize("line", ["", "docker run", "docker ps", "docker run -e", "--frobnicate x", "-Z", "-m"])
def test_what_is_no_docker_run_line(line: str) -> None:
    with pytest.raises(UsageError):
        run(line)


def test_no_value_of_a_secret_is_in_what_is_printed() -> None:
    found = run("-e API_KEY=canary -e DB=postgres://u:canary@h/x --env-file canary-file alpine")
    assert "canary" not in json.dumps(found.fields)
    assert "canary@" not in str(found.left)


COMPOSE = """
x-common: &common
  environment: {LANG: C, DEBUG: "${DEBUG:-no}"}
services:
  web:
    <<: *common
    image: "python:${VERSION-3.12}"
    entrypoint: ["python", "-m"]
    command: http.server 80
    working_dir: /app
    ports: [22:22, {target: 80, published: 8080, host_ip: 127.0.0.1}]
    volumes: [{type: bind, source: ./src, target: /app}]
    deploy: {resources: {limits: {cpus: "0.5", memory: 50M, pids: 9}}}
    labels: [a=b]
    read_only: true
    user: 1000
    network_mode: none
"""


def test_a_compose_service() -> None:
    found = compose(COMPOSE)
    assert found.fields == {
        "name": "web", "image": "python:3.12", "command": ["python", "-m", "http.server", "80"],
        "env": {"LANG": "C", "DEBUG": "no"}, "workdir": "/workspace", "ports": ["22:22", "127.0.0.1:8080:80"],
        "workspace": "/project/src", "cpus": 0.5, "memory_mib": 50, "pids": 9, "labels": {"a": "b"},
        "read_only_root": True, "user": "1000",
    }  # fmt: skip
    assert compose(COMPOSE, environ={"VERSION": "3.11", "DEBUG": "x"}).fields["image"] == "python:3.11"


def test_values_of_yaml_1_2_stay_what_compose_reads() -> None:
    text = "services: {a: {environment: {A: on, B: 22:22, C: 1_000, D: 0o7, E: yes, F: 1.5, G: true, H: ~, I: 2020-01-01}}}"
    found = compose(text)
    assert found.fields["env"] == {
        "A": "on", "B": "22:22", "C": "1_000", "D": "0o7", "E": "yes", "F": "1.5", "G": "true", "I": "2020-01-01",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["\0", "a\ud800.env"])
def test_an_env_file_of_a_name_that_no_file_can_have_is_left_out(name: str) -> None:
    imported = compose(json.dumps({"services": {"a": {"image": "x", "env_file": name}}}))
    assert ["outside the folder" in why for what, why in imported.left if what.startswith("env_file")] == [True]


def test_env_files_are_read_beside_the_file_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("# x\nexport A=1\nB='two words'\nC=\"3\" \nD=4 # four\nPASSWORD=canary\n")
    text = "services: {a: {env_file: [a.env, ../b.env, /etc/shadow, {path: no.env, required: false}], environment: {A: 9}}}"
    found = read_compose(tmp_path / "compose.yaml", text, "", lambda path: path.read_text(), {})
    assert found.fields["env"] == {"A": "9", "B": "two words", "C": "3", "D": "4"}
    left = dict(found.left)
    assert "outside the folder" in left["env_file ../b.env"]
    assert "outside the folder" in left["env_file /etc/shadow"]
    assert "canary" not in str(found)
    (tmp_path / "link.env").symlink_to("/etc/passwd")
    linked = read_compose(
        tmp_path / "c.yaml", "services: {a: {env_file: link.env}}", "", lambda path: path.read_text(), {}
    )
    assert "env" not in linked.fields
    with pytest.raises(UsageError):
        compose("services: {a: {env_file: missing.env}}")


def test_variables_that_sound_secret_are_not_interpolated() -> None:
    found = compose(
        "services: {a: {image: 'x:${GITHUB_TOKEN}', command: 'echo ${GITHUB_TOKEN}'}}",
        environ={"GITHUB_TOKEN": "canary"},
    )
    assert "canary" not in str(found)
    assert [what for what, _ in found.left].count("$GITHUB_TOKEN") == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("services: {a: {extends: {service: b}}}", "extends is not supported"),
        ("include: [x.yaml]\nservices: {a: {}}", "include is not supported"),
        ("services: {a: {}, b: {}}", "2 services"),
        ("services: 3", "no services"),
        ("- a", "no services"),
        ("services: {a: 3}", "not a table"),
        ("services: {a: {image: '${X:?set it}'}}", "X is required: set it"),
        ("services: {a: {image: '${X'}}", "closing brace"),
        ("services:\n  a:\n    image: [", "line 3"),
        ("services: {a: !!python/object/apply:os.system ['id']}", "could not determine a constructor"),
        ("a: &a [*a]\nservices: {b: {image: *x}}", "undefined alias"),
    ],
)
def test_what_is_refused_of_a_compose_file(text: str, told: str) -> None:
    with pytest.raises(ConsoleError) as caught:
        compose(text)
    assert told in caught.value.message


def test_a_service_that_is_not_there() -> None:
    with pytest.raises(NotFound) as caught:
        compose("services: {web: {}}", "wbe")
    assert "did you mean web" in caught.value.hint


def test_a_billion_laughs_and_a_deep_file_end_at_once() -> None:
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    for text in (
        laughs,
        "[" * 100_000,
        "a: " + "{b: " * 5000,
        "x: " + "9" * 500_000,
        "services: {a: {image: " + "$" * 999 + "}}",
    ):
        began = time.monotonic()
        with pytest.raises(UsageError):
            compose(text)
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("text", "put"),
    [
        ("$A-${A}", "1-1"), ("$$A", "$A"), ("${N}", ""), ("${N:-x}", "x"), ("${E:-x}", "x"), ("${E-x}", ""),
        ("${N-${A}}", "1"), ("${A:+y}", "y"), ("${E:+y}", ""), ("${E+y}", "y"), ("${N+y}", ""), ("${A:?no}", "1"),
        ("${N:-a}b}", "ab}"), ("a$", None), ("${}", None), ("${A!}", None), ("$1", None),
    ],
)  # fmt: skip
def test_interpolation_by_the_compose_spec(text: str, put: str | None) -> None:
    values = {"A": "1", "E": ""}
    if put is None:
        with pytest.raises(UsageError):
            replace(text, values.get)
    else:
        assert replace(text, values.get) == put


def test_a_devcontainer() -> None:
    text = """{
        // a comment, with "quotes"
        "name": "My Project!", /* another */
        "image": "mcr.example.com/python:3", "url": "http://x//y",
        "containerEnv": {"A": "1", "SECRET": "canary", "D": "${localWorkspaceFolderBasename}", "H": "${localEnv:HOME}"},
        "remoteUser": "dev", "workspaceFolder": "/workspace", "forwardPorts": [3000, "db:5432"],
        "runArgs": ["--cpus", "2", "--cap-add=SYS_PTRACE"],
        "postCreateCommand": "make", "features": {},
    }"""
    found = read_devcontainer(Path("/src/app/.devcontainer/devcontainer.json"), text)
    assert found.fields == {
        "name": "My-Project", "image": "mcr.example.com/python:3", "user": "dev", "ports": ["3000"], "cpus": 2.0,
        "env": {"A": "1", "D": "app"}, "workspace": "/src/app",
    }  # fmt: skip
    left = dict(found.left)
    assert left["containerEnv H"] == "its value is in the environment: give it with --env, or define a secret"
    assert "workspaceFolder /workspace" not in left
    assert {"url", "features", "postCreateCommand", "--cap-add SYS_PTRACE", "containerEnv SECRET", "network"} <= set(
        left
    )
    assert "canary" not in str(found)


def test_json_with_comments() -> None:
    assert parse_jsonc("x", '{"a": "// no /* no */ \\" ,}", /* x */ "b": [1, 2,], // y\n }') == {
        "a": '// no /* no */ " ,}', "b": [1, 2],
    }  # fmt: skip
    for text in ("{", '{"a": }', "[" * 100_000, "", '{"a": "x}', "/* never"):
        with pytest.raises(UsageError):
            parse_jsonc("x", text)


def test_a_container_of_another_tool() -> None:
    raw = {
        "Config": {
            "Entrypoint": ["sh"], "Cmd": ["-c", "ls"], "User": "app", "WorkingDir": "/srv",
            "Env": ["PATH=/bin", "A=b", "TOKEN=canary"], "Labels": {"com.docker.compose.project": "x", "mine": "1"},
        },
        "HostConfig": {
            "PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}], "53/udp": [{"HostIp": "", "HostPort": "53"}]},
            "Binds": ["/data:/data:rw"], "ReadonlyRootfs": True, "Privileged": True, "NetworkMode": "bridge",
        },
    }  # fmt: skip
    other = Sandbox(SandboxRef("docker", "default", "a" * 64), "/odd name", Status.RUNNING, "alpine", managed=False)
    found = read_sandbox(other, raw)
    assert found.fields == {
        "name": "odd-name", "image": "alpine", "command": ["sh", "-c", "ls"], "user": "app", "workdir": "/srv",
        "env": {"A": "b"}, "labels": {"mine": "1"}, "ports": ["8080:80"], "workspace": "/data", "read_only_root": True,
    }  # fmt: skip
    assert "canary" not in str(found)
    with pytest.raises(ConsoleError):
        read_sandbox(other, None)


# -- hostile text: it ends in fields, or in an error of the console, and soon

TEXT = st.text(max_size=60)
WORDS = st.lists(
    st.one_of(
        TEXT, st.sampled_from(sorted(f"--{name}" for name in _FLAGS | _VALUES)), st.sampled_from(["-v", "-e", "-p", "-itd"]),
        st.from_regex(r"-[a-zA-Z]{1,4}=?[a-z:/0-9]{0,6}", fullmatch=True),
    ),
    max_size=12,
)  # fmt: skip
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "image",
        "command",
        "entrypoint",
        "environment",
        "env_file",
        "labels",
        "working_dir",
        "user",
        "ports",
        "volumes",
        "deploy",
        "cpus",
        "mem_limit",
        "read_only",
        "security_opt",
        "network_mode",
        "container_name",
        "pids_limit",
        "runtime",
    ]
)
DEV_KEYS = st.sampled_from(
    [
        "name",
        "image",
        "containerEnv",
        "remoteEnv",
        "forwardPorts",
        "appPort",
        "runArgs",
        "workspaceFolder",
        "workspaceMount",
        "remoteUser",
    ]
)
LEAN = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@LEAN
@given(WORDS)
def test_any_words_are_a_spec_or_an_error(words: list[str]) -> None:
    try:
        assert "image" in read_docker_run(words, FOLDER).fields
    except UsageError:
        return


@LEAN
@given(st.dictionaries(KEYS, PLAIN, max_size=5))
def test_any_service_is_a_spec_or_an_error(table: dict[str, object]) -> None:
    try:
        compose(json.dumps({"services": {"a": table}}))
    except ConsoleError:
        return


@LEAN
@given(st.text(alphabet="abc:-[]{}&*!|>'\"#\n ,$%@?\t0", max_size=200))
def test_any_text_is_yaml_or_an_error(text: str) -> None:
    try:
        parse_yaml("x", text)
    except UsageError:
        return


@LEAN
@given(st.dictionaries(DEV_KEYS, PLAIN, max_size=5))
def test_any_devcontainer_is_a_spec_or_an_error(table: dict[str, object]) -> None:
    try:
        read_devcontainer(FOLDER / "devcontainer.json", json.dumps(table))
    except ConsoleError:
        return


@pytest.mark.parametrize("char", ["\x85", "\u2028", "\u2029"])
def test_a_character_that_is_a_line_break_in_old_yaml_only_is_refused_with_its_line(char: str) -> None:
    with pytest.raises(UsageError, match=f"line 2: it contains the character U.{ord(char):04X}") as caught:
        parse_yaml("x", f'a: 1\nb: "c{char}d"\n')
    assert parse_yaml("x", f'b: "c\\u{ord(char):04x}d"') == {"b": f"c{char}d"}
    assert f'"\\u{ord(char):04X}"' in caught.value.hint


@LEAN
@given(PLAIN)
def test_yaml_reads_what_yaml_wrote_as_compose_would(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    try:
        assert parse_yaml("x", text) == json.loads(text)
    except UsageError:  # control characters, which YAML does not have
        assert not text.isprintable()
    assert yaml.safe_load("a: 22:22") == {"a": 1342}, "why the loader is not PyYAML's own"


@pytest.mark.parametrize(
    "text", ["/* " * 300_000, '{"a": ' + '"\\' * 300_000, '"\\"' * 300_000, '{"a": "' + '\\"' * 300_000]
)
def test_a_file_that_closes_nothing_is_refused_and_not_searched_for_hours(text):
    """Each opening was searched to the end of the file: 4 times as long for twice the size."""
    with pytest.raises(UsageError, match="not JSON with comments"):
        parse_jsonc("devcontainer.json", text)


@pytest.mark.parametrize("size", ["9" * 400, "9" * 400 + "g", "9" * 19 + "k"])
def test_sizes_and_numbers_that_are_too_large_are_left(size):
    imported = run(f"docker run --memory {size} --cpus 1e999 alpine")
    assert not imported.fields.keys() & {"memory_mib", "cpus"}
    assert [reason for flag, reason in imported.left if flag.startswith(("--memory", "--cpus"))] == [
        "it is too large"
    ] * 2
