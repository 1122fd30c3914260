"""The verbs that look into sandboxes, copy, and keep images and snapshots: text and JSON, byte for byte."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from msgspec import structs
from tests.cli.golden import NOW, Golden, sandboxes

from sandbox_console.cli import lookup, parser
from sandbox_console.cli.context import Sink, Streams
from sandbox_console.cli.run import run
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.guest import GuestEvent, GuestProcess
from sandbox_console.model.image import Image, Snapshot
from sandbox_console.model.sandbox import Fact, SandboxRef
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend, Within

WEB = "aaaaaaaaaaa1"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")


@pytest.fixture
def fake() -> FakeBackend:
    from msgspec import structs

    hostile = "\x1b]52;c;AAAA\x07/bin/\u202eevil"
    within = Within(
        files={WEB: {"/srv/app/main.py": b"print('hi')\n", "/srv/app/data/\x1b[2Jodd": b"x", "/tmp/new": b""}},
        processes={WEB: [
            GuestProcess(1, 0, "root", 12.34, 150 << 20, "S", "python -m http.server"),
            GuestProcess(7, 1, "", None, None, "", hostile),
        ]},
        guest_events={WEB: [
            GuestEvent(NOW - 7300, "create", attributes={"image": "python:3.12"}),
            GuestEvent(NOW - 60, "exec_start", hostile),
            GuestEvent(NOW - 30.5, "die", "out of memory", {"exitCode": "137", "signal": "9"}),
        ]},
        images=[
            Image("fake", "local", "sha256:" + "0" * 64, (), size_bytes=5 << 20, created_at=NOW - 86400 * 40),
            Image("fake", "local", "sha256:" + "1" * 64, ("spare:1", "spare:latest"), size_bytes=7 << 20, created_at=NOW),
        ],
        snapshots=[Snapshot("fake", "local", "before", "web", NOW - 3600, 12 << 20, full=True)],
    )  # fmt: skip
    found = sandboxes()
    ports = (Fact("port 80/tcp", "127.0.0.1:8080"), Fact("port 443/tcp", "0.0.0.0:8443", note="open to every network"))
    found[0] = structs.replace(found[0], effective=ports)
    return FakeBackend(found, within=within, clock=lambda: NOW)


def both(golden: Golden, line: str) -> None:
    golden(line)
    golden(f"{line} --json")


def test_looks(fake: FakeBackend) -> None:
    golden = Golden([fake])
    for line in ("top web", "top batch", "inspect web", "diff web", "events web", "events web --since 1m", "port web"):
        both(golden, line)
    both(golden, "port batch")
    both(golden, "top nope")
    golden("events web --since yesterday")
    golden.check("looks")


def test_what_a_backend_cannot_is_told_with_its_reason() -> None:
    able = Capabilities(
        frozenset({Capability.CREATE}), {Capability.IMAGES: "it keeps none", Capability.DIFF: "no layer"}
    )
    golden = Golden([FakeBackend(sandboxes(), capabilities=able)])
    for line in ("top web", "diff web", "images ls", "images pull x", "snapshot ls", "fork web w2", "commit web i",
                 "cp web:/etc/passwd -", "attach web"):  # fmt: skip
        both(golden, line)
    golden.check("cannot")


def test_names_and_what_is_made_of_a_sandbox(fake: FakeBackend) -> None:
    golden = Golden([fake])
    both(golden, "rename web web2")
    golden("rename web web2 --json")
    golden("rename web2 batch")
    both(golden, "commit batch mine:1")
    both(golden, "fork web2 copy")
    golden("fork web2 copy2 --json")
    golden("snapshot create web2 now --full")
    golden("snapshot create web2 disk --json")
    golden("snapshot create web2 now")
    both(golden, "snapshot ls")
    golden("snapshot restore disk again")
    golden("snapshot restore disk again2 --json")
    golden("snapshot restore nope x")
    golden("snapshot rm now disk")
    golden("snapshot rm before --json")
    golden("snapshot ls")
    golden("ls")
    golden("commit theirs x")
    golden("commit theirs x --confirm ddddddddddd4")
    golden.check("derived")


def test_images(fake: FakeBackend) -> None:
    golden = Golden([fake])
    both(golden, "images ls")
    golden("images pull alpine:3 debian:12")
    golden("images pull one:missing two:1 --json")
    golden("images rm python:3.12")
    golden("images rm python:3.12 --json")
    golden("images rm spare:1 alpine:3")
    both(golden, "images prune --dry-run")
    golden("images prune --dry-run --all --json")
    golden("images prune")
    golden("images prune --all --json")
    golden("images ls")
    golden("images rm nope")
    golden.check("images")


def test_images_of_two_backends_need_a_name() -> None:
    golden = Golden([FakeBackend(), FakeBackend(name="other")], Config())
    golden("images pull x")
    golden("images pull x --backend other")
    golden("images ls --backend other")
    golden("images ls --backend nowhere")
    golden.check("images_two")


HANGS = 3600.0


def beside_a_silent_host(
    away: str, *, default: str = "", timeout_s: float = 0.2
) -> tuple[Golden, FakeBackend, FakeBackend]:
    """One host that answers, and one that did, with an image and a snapshot each."""

    def one(name: str) -> FakeBackend:
        image = Image(name, "local", f"sha256:{name}", (f"{name}:1",))
        snapshot = Snapshot(name, "local", f"s-{name}", "web")
        return FakeBackend(name=name, within=Within(images=[image], snapshots=[snapshot]), clock=lambda: NOW)

    near, far = one("near"), one("far")
    config = Config(backend=default, backends={"far": {"timeout_s": timeout_s}})
    golden = Golden([near, far], config)
    golden("ls")
    if away == "dead":
        far.faults.dead, far.faults.reason = True, "connection refused"
    else:
        far.faults.verbs.update(open=HANGS, list=HANGS)
    golden.transcript = ""
    return golden, near, far


@pytest.mark.parametrize("away", ["dead", "frozen"])
@pytest.mark.parametrize(
    "line",
    ["images pull x:1", "images rm near:1", "images rm far:1", "images prune", "images prune --dry-run",
     "images save near:1 -o /dev/null", "snapshot restore s-near new", "snapshot restore s-far new",
     "snapshot rm s-near", "snapshot rm s-far", "snapshot restore nope new"],
)  # fmt: skip
def test_a_host_that_does_not_answer_and_may_be_meant_is_named(line: str, away: str) -> None:
    golden, near, _ = beside_a_silent_host(away)
    assert golden(line) == 5
    assert "far does not answer and may" in golden.transcript
    assert "--only-answering" in golden.transcript
    assert list(near._images) == ["sha256:near"]
    assert list(near._snapshots) == ["s-near"]


@pytest.mark.parametrize(("line", "row"), [("images ls", "near:1"), ("snapshot ls", "s-near"), ("stats", "near-web")])
def test_a_list_prints_what_has_answered_before_a_frozen_host_gives_up(
    line: str, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden, near, _ = beside_a_silent_host("frozen", timeout_s=2.0)
    web = structs.replace(sandboxes()[0], ref=SandboxRef("near", "local", "near00000001"), name="near-web")
    near.sandboxes[web.ref.id] = web
    monkeypatch.setattr(lookup, "PATIENCE_S", 0.05)
    both = io.BytesIO()
    streams = Streams(Sink(both, tty=False), Sink(both, tty=False))
    assert run(parser.parse(line.split()), opener=golden._open, streams=streams, now=lambda: NOW) == 0
    said = both.getvalue().decode()
    assert said.index(row) < said.index("warning: far: unreachable"), said
    assert said.index("waiting for far ...") < said.index("warning: far: unreachable"), said
    assert said.count("NAME ") == 1, said


@pytest.mark.parametrize("away", ["dead", "frozen"])
def test_what_leaves_a_silent_host_out_goes_on(away: str) -> None:
    golden, _, _ = beside_a_silent_host(away)
    assert golden("images pull x:1 --backend near") == 0
    assert golden("images rm x:1 --only-answering") == 0
    assert golden("snapshot rm s-near --backend near") == 0
    assert golden("snapshot rm s-far --only-answering") == 3
    golden, _, _ = beside_a_silent_host(away)
    assert golden("snapshot rm s-near --only-answering") == 0
    assert "does not answer" not in golden.transcript
    golden, _, _ = beside_a_silent_host(away, default="near")
    assert golden("images rm near:1") == 0  # the default answers, so no other is meant
    golden, _, _ = beside_a_silent_host(away, default="far")
    assert golden("images rm near:1") == 5


@pytest.mark.parametrize("away", ["dead", "frozen"])
def test_a_rename_beside_a_silent_host(away: str) -> None:
    web = sandboxes()[0]

    def named(backend: str, name: str) -> FakeBackend:
        ref = SandboxRef(backend, "local", f"{backend}00000001")
        return FakeBackend([structs.replace(web, ref=ref, name=name)], name=backend, clock=lambda: NOW)

    near, far = named("near", "one"), named("far", "two")
    golden = Golden([near, far], Config(backends={"far": {"timeout_s": 0.2}}))
    golden("ls")
    far.faults.dead = away == "dead"
    far.faults.verbs.update({"open": HANGS, "list": HANGS} if away == "frozen" else {})
    assert golden("rename one two") == 7  # there would be two of that name
    assert "far does not answer and held 'two'" in golden.transcript
    assert golden("rename two other") == 5
    assert golden("rename one other") == 0
    assert golden("rename other two --only-answering") == 0
    assert [one.name for one in near.sandboxes.values()] == ["two"]


@pytest.mark.parametrize("line", ["images ls", "snapshot ls"])
def test_lists_name_a_host_that_does_not_answer(line: str) -> None:
    golden, _, _ = beside_a_silent_host("frozen")
    assert golden(line) == 0
    assert "warning: far: unreachable: no answer within 0.2 s" in golden.transcript
    assert "near" in golden.transcript
    assert golden(f"{line} --backend far") == 5


def test_secrets_name_a_host_that_does_not_answer_and_ask_none_if_there_is_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    golden, _, _ = beside_a_silent_host("dead")
    asked, listed = [], FakeBackend.list
    monkeypatch.setattr(FakeBackend, "list", lambda backend, *given: asked.append(backend) or listed(backend, *given))
    assert golden("secrets ls") == 0
    assert not asked
    assert "no secret is defined" in golden.transcript
    golden._config = structs.replace(golden._config, secrets={"TOKEN": SecretSource(source="env:TOKEN")})
    assert golden("secrets ls") == 0
    assert "warning: which sandboxes use them is not known for far (connection refused)" in golden.transcript


def test_an_image_goes_out_and_comes_back(fake: FakeBackend, tmp_path: Path) -> None:
    golden = Golden([fake])
    assert golden("commit web mine:1") == 0
    assert golden(f"images save mine:1 -o {tmp_path}/i.tar --json") == 0
    assert golden("images rm mine:1") == 0
    with (tmp_path / "i.tar").open("rb") as file:
        assert golden("images load - --json", stdin=file.fileno()) == 0
    assert golden(f"images load {tmp_path}/i.tar") == 0
    assert golden(f"images load {tmp_path}/none.tar") == 1
    assert golden("images save nope -o " + str(tmp_path / "no.tar")) == 3
    assert sorted(one.name for one in tmp_path.iterdir()) == ["home", "i.tar"]
    assert "mine:1" in golden.transcript
    assert golden(f"images save mine:1 -o {tmp_path}/nowhere/i.tar") == 1


@pytest.fixture
def golden(fake: FakeBackend) -> Golden:
    return Golden([fake])


def test_a_file_comes_out_by_the_rules_of_docker_cp(golden: Golden, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    assert golden(f"cp web:/srv/app/main.py {out}") == 0
    assert golden(f"cp web:/srv/app/main.py {out}/other.py --json") == 0
    assert golden(f"cp fake:web:/srv/app/main.py {out}/main.py") == 0
    assert (out / "main.py").read_text() == (out / "other.py").read_text() == "print('hi')\n"
    assert golden(f"cp web:/srv/app/main.py {out}/no/such.py") == 3
    assert golden(f"cp web:/srv/app/main.py {out}/folder/") == 3
    assert golden(f"cp web:/srv/nope {out}") == 3
    assert sorted(one.name for one in out.iterdir()) == ["main.py", "other.py"]


def test_a_folder_comes_out(golden: Golden, tmp_path: Path) -> None:
    there, new = tmp_path / "there", tmp_path / "new"
    there.mkdir()
    assert golden(f"cp web:/srv/app {there}") == 0
    assert (there / "app" / "data" / "\x1b[2Jodd").read_bytes() == b"x"
    assert golden(f"cp web:/srv/app {new}") == 0
    assert golden(f"cp web:/srv/app/. {there}") == 0
    assert (new / "main.py").exists()
    assert (there / "main.py").exists()
    assert golden(f"cp web:/srv/app {new}/main.py") == 7


def test_files_and_folders_go_in(golden: Golden, fake: FakeBackend, tmp_path: Path) -> None:
    tree = fake._tree(WEB)
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "f").write_bytes(b"f" * 700_000)
    (source / "link").symlink_to("sub/f")
    os.mkfifo(source / "fifo")
    assert golden(f"cp {source} web:/tmp") == 1  # the FIFO stays here
    assert "skipped: " in golden.transcript
    assert tree.nodes["/tmp/source/sub/f"].data == b"f" * 700_000
    assert tree.nodes["/tmp/source/link"].target == "sub/f"
    assert golden(f"cp -L {source}/link web:/tmp/plain --json") == 0
    assert tree.nodes["/tmp/plain"].data == b"f" * 700_000
    assert golden(f"cp {source}/. web:/srv") == 1
    assert "/srv/sub/f" in tree.nodes
    assert golden(f"cp {source} web:/made") == 1
    assert "/made/sub/f" in tree.nodes
    assert golden(f"cp {source} web:/tmp/plain") == 7
    assert golden(f"cp {source}/sub/f web:/no/such/place") == 3
    assert golden(f"cp {source}/sub/f web:/nowhere/") == 3
    assert golden(f"cp {source}/none web:/tmp") == 3


def test_a_tar_goes_by_stdin_and_stdout(golden: Golden, fake: FakeBackend, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a", "deep/a")
    with (tmp_path / "a.tar").open("rb") as file:
        assert golden("cp - web:/tmp", stdin=file.fileno()) == 0
    assert fake._tree(WEB).nodes["/tmp/deep/a"].data == b"a"
    before = len(golden.transcript)
    assert golden("cp web:/tmp/deep -") == 0
    assert "deep/a" in golden.transcript[before:]
    assert golden("cp - web:/tmp", stdin=None) == 2
    with open(os.devnull, "rb") as file:  # noqa: PTH123 - a descriptor is wanted
        assert golden("cp - web:/tmp", stdin=file.fileno()) == 2


def test_the_words_of_cp(golden: Golden, tmp_path: Path) -> None:
    assert golden("cp a b") == 2
    assert golden("cp web:/a web:/b") == 2
    assert golden("cp web:/a ./x:/y") == 3
    assert golden("cp web:a /tmp") == 2
    assert golden("cp nope:/a .") == 3


def test_a_policy_holds_for_copies(fake: FakeBackend, tmp_path: Path) -> None:
    golden = Golden([fake], Config(backend="fake", policy=Rules(deny=("download",))))
    assert golden(f"cp web:/etc/passwd {tmp_path}/p") == 4
    assert not (tmp_path / "p").exists()
    assert golden(f"cp {tmp_path} web:/tmp --read-only") == 4
    assert golden("attach web --no-stdin --read-only") == 125
