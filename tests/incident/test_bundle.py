"""Evidence bundles of real sandboxes, checked, bent and verified by hand."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zstandard
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.incident.conftest import Make, until_ended
from tests.library.conftest import CANARY

from sandbox_console.errors import UsageError
from sandbox_console.model.action import Remove, Upload
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.secret import Secret
from sandbox_console.service import Consent, Console, ExecIO
from sandbox_console.service.incident import bundle_reader
from sandbox_console.service.incident.bundle import WrittenBundle, signed_text
from sandbox_console.service.incident.bundle import bundle as make_bundle
from sandbox_console.service.incident.bundle_file import FRAME, header, text
from sandbox_console.service.incident.bundle_verify import verify as verify_bundle


async def made(
    console: Console, *sandboxes: Sandbox, until: float = 4e9, **more: object
) -> tuple[bytes, WrittenBundle]:
    out = io.BytesIO()
    done = await make_bundle(console, sandboxes, out.write, until=until, **more)  # type: ignore[arg-type]
    return out.getvalue(), done


def parts_of(data: bytes) -> dict[str, bytes]:
    tar = zstandard.ZstdDecompressor().stream_reader(data).read()
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def lines(parts: dict[str, bytes], stem: str) -> list[dict]:
    return [json.loads(line) for name in sorted(parts) if name.startswith(stem) for line in parts[name].splitlines()]


async def upload(console: Console, ref: SandboxRef, content: bytes) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("new")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))

    async def chunks() -> AsyncIterator[bytes]:
        yield out.getvalue()

    await console.perform(Upload(ref, "/etc"), io=ExecIO(chunks())).result()


async def test_a_bundle_has_what_is_known_and_says_what_it_lacks(console: Console, make: Make, backend: str) -> None:
    ref = await make("sh", "-c", "echo out; echo ERROR bad >&2; exit 3", env={"TOKEN": "hidden"})
    sandbox = await until_ended(console, ref)
    if backend == "docker":
        await upload(console, ref, b"changed\n")
    data, done = await made(console, sandbox)
    found = verify_bundle(io.BytesIO(data))
    assert (found.ok, found.problem) == (True, "")
    parts = parts_of(data)
    folder = done.manifest.sandboxes[0].folder
    assert json.loads(parts[f"{folder}/why.json"])["why"] == "its command failed: exit 3"
    assert sorted(one["data"] for one in lines(parts, f"{folder}/logs")) == ["ERROR bad\n", "out\n"]
    assert {one["source"] for one in lines(parts, f"{folder}/timeline")} >= {"audit", "backend", "log"}
    assert lines(parts, f"{folder}/events")
    assert json.loads(parts[f"{folder}/spec.json"])["env"] == {"TOKEN": "[left out]"}
    assert done.manifest.sandboxes[0].withheld == 1
    assert b"hidden" not in b"".join(parts.values())
    rows = lines(parts, "audit/rows")
    assert [(row["kind"], row["action"]) for row in rows[:2]] == [("attempt", "create"), ("outcome", "create")]
    missing = {one.part: one.why for one in done.manifest.sandboxes[0].missing}
    assert {"egress", "processes", "samples"} < set(missing)
    if backend == "docker":
        [change] = [one for one in lines(parts, f"{folder}/changes") if one["path"] == "/etc/new"]
        assert parts[change["part"]] == b"changed\n"
    else:
        assert "not an image and a layer" in missing["changes"]
    [entry] = await console.history(AuditQuery(action="bundle"))
    assert entry.outcome == "ok"
    told = [one for one in json.loads(parts["manifest.json"])["parts"] if one["name"].startswith(folder)]
    told_text = json.dumps(told, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    assert entry.end.body["sha256"] == hashlib.sha256(told_text).hexdigest()


async def test_secrets_are_masked_and_counted(console: Console, make: Make, backend: str) -> None:
    console.give_secret("GIVEN", Secret(CANARY))
    ref = await make("sh", "-c", 'echo "$GIVEN and $GIVEN"; echo "$GIVEN" >&2; exit 1', secrets=("GIVEN",))
    sandbox = await until_ended(console, ref)
    if backend == "docker":
        await upload(console, ref, f"token={CANARY}\n".encode())
    data, done = await made(console, sandbox)
    parts = parts_of(data)
    assert CANARY.encode() not in b"".join(parts.values())
    counts = {one.name.partition("/")[2]: one.redacted for one in done.manifest.parts}
    assert counts["logs-000001.jsonl"] == 3
    if backend == "docker":
        [change] = [one for one in lines(parts, "001-t0/changes") if one["path"] == "/etc/new"]
        assert parts[change["part"]] == b"token=[secret]\n"
        assert counts[change["part"].partition("/")[2]] == 1
    assert done.manifest.redacted == sum(counts.values())


async def test_equal_evidence_makes_an_equal_file(console: Console, make: Make) -> None:
    sandbox = await until_ended(console, await make("sh", "-c", "echo one; echo two >&2; exit 1"))
    until = time.time()
    first, _ = await made(console, sandbox, until=until)
    second, _ = await made(console, sandbox, until=until)
    assert first == second


async def test_a_sandbox_that_runs_has_processes_and_samples(console: Console, make: Make) -> None:
    ref = await make("sleep", "1000")
    data, done = await made(console, await console.inspect(ref))
    folder = done.manifest.sandboxes[0].folder
    assert any("sleep" in one["command"] for one in lines(parts_of(data), f"{folder}/processes"))
    assert len(lines(parts_of(data), f"{folder}/samples")) == 3


async def test_one_that_is_gone_is_named_and_the_others_are_in(console: Console, make: Make) -> None:
    well = await until_ended(console, await make("sh", "-c", "echo well"))
    gone = await console.inspect(await make("sh", "-c", "echo gone"))
    consent = Consent(yes=True, confirm=gone.ref.id)
    await console.perform(Remove(gone.ref, force=True), consent=consent).result()
    data, done = await made(console, gone, well)
    assert [one.part for one in done.manifest.sandboxes[0].missing] == ["all"]
    assert list(done.failures) == [gone.ref]
    assert verify_bundle(io.BytesIO(data)).ok


async def test_several_consoles_rows_between_stay_private(console: Console, make: Make) -> None:
    first = await until_ended(console, await make("sh", "-c", "echo first", name="first"))
    await make("sh", "-c", "echo", name="secret-project")
    data, done = await made(console, first)
    assert verify_bundle(io.BytesIO(data)).ok
    parts = parts_of(data)
    assert b"secret-project" not in b"".join(parts.values())
    assert len(parts["audit/links-000001.tsv"].splitlines()) > done.manifest.rows


@pytest.fixture
async def sample(console: Console, make: Make, tmp_path: Path) -> bytes:
    data, _ = await made(console, await until_ended(console, await make("sh", "-c", "seq 300; exit 1")))
    return data


async def test_every_flipped_bit_is_found(sample: bytes) -> None:
    chosen = random.Random(7)
    assert verify_bundle(io.BytesIO(sample)).ok
    for _ in range(300):
        at = chosen.randrange(len(sample) * 8)
        bent = bytearray(sample)
        bent[at // 8] ^= 1 << at % 8
        assert not verify_bundle(io.BytesIO(bytes(bent))).ok, f"bit {at}"


def sealed(tar: bytes) -> bytes:
    """A file as a forger would make it: everything that needs no key is right."""
    body = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(tar)
    return body + FRAME + hashlib.sha256(body).digest()


def repacked(data: bytes, change) -> bytes:
    """The bundle with its parts changed, and its manifest brought up to them; its signature is the old one."""
    parts = parts_of(data)
    change(parts)
    told = json.loads(parts.pop("manifest.json"))
    signature = parts.pop("manifest.sig")
    told["parts"] = [
        {"name": name, "bytes": len(one), "sha256": hashlib.sha256(one).hexdigest(), "redacted": 0}
        for name, one in parts.items()
    ]
    parts |= {"manifest.json": text(told, indent=1), "manifest.sig": signature}
    tar = b"".join(header(name, len(one)) + one + bytes(-len(one) % 512) for name, one in parts.items())
    return sealed(tar + bytes(1024))


def resigned(data: bytes) -> bytes:
    """All of it signed by a key of the forger's own."""
    pair = Ed25519PrivateKey.generate()
    parts = parts_of(data)
    pem = pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts["audit/public-key.pem"] = pem
    told = json.loads(parts["manifest.json"])
    for one in told["parts"]:
        if one["name"] == "audit/public-key.pem":
            one |= {"bytes": len(pem), "sha256": hashlib.sha256(pem).hexdigest()}
    parts["manifest.json"] = text(told, indent=1)
    parts["manifest.sig"] = pair.sign(signed_text(parts["manifest.json"]))
    return sealed(
        b"".join(header(n, len(one)) + one + bytes(-len(one) % 512) for n, one in parts.items()) + bytes(1024)
    )


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_what_a_forger_changes_is_found(sample: bytes) -> None:
    def edit(stem: str, old: bytes, new: bytes):
        def change(parts: dict[str, bytes]) -> None:
            [name] = [one for one in parts if stem in one]
            assert old in parts[name]
            parts[name] = parts[name].replace(old, new, 1)

        return change

    assert verify_bundle(io.BytesIO(repacked(sample, lambda _: None))).ok
    for change, why in (
        (edit("logs-", b"300", b"301"), "signature"),
        (edit("audit/rows", b'"attempt"', b'"outcome"'), "it was edited or made up"),
        (edit("audit/rows", b'"ok"', b'"no"'), "it was edited or made up"),
        (edit("audit/links", b"\t", b" "), "malformed"),
        (edit("audit/anchors", b'"seq":', b'"seq":1'), "is not signed"),
        (lambda parts: parts.pop("audit/links-000001.tsv"), "signature"),
    ):
        assert why in verify_bundle(io.BytesIO(repacked(sample, change))).problem, why
    told = verify_bundle(io.BytesIO(resigned(sample)))
    assert "is not signed by the key of this log" in told.problem


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_another_consoles_bundle_is_told_by_the_key(console: Console, sample: bytes) -> None:
    own = console.audit_log.public_key()
    assert verify_bundle(io.BytesIO(sample), own).ok
    pair = Ed25519PrivateKey.generate().public_key()
    other = pair.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert "another key" in verify_bundle(io.BytesIO(sample), other).problem
    with pytest.raises(UsageError):
        verify_bundle(io.BytesIO(sample), b"no key")


def hostile(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return sealed(out.getvalue())


def info(name: str, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.mode = 0o600
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def lying(size: int) -> bytes:
    return sealed(header("a", 4096).replace(b"00000010000", b"%011o" % size) + bytes(4096) + bytes(1024))


def _window() -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=False)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = packer.compress(bytes(1024)) + packer.flush()
    return body + FRAME + hashlib.sha256(body).digest()


HOSTILE = {
    "absolute": lambda: hostile((info("/etc/passwd"), b"x")),
    "dots": lambda: hostile((info("a/../../b"), b"x")),
    "link": lambda: hostile((info("a", type=tarfile.SYMTYPE, linkname="/etc/passwd"), b"")),
    "hard link": lambda: hostile((info("a", type=tarfile.LNKTYPE, linkname="/etc/passwd"), b"")),
    "device": lambda: hostile((info("a", type=tarfile.CHRTYPE), b"")),
    "pipe": lambda: hostile((info("a", type=tarfile.FIFOTYPE), b"")),
    "folder": lambda: hostile((info("a", type=tarfile.DIRTYPE), b"")),
    "twice": lambda: sealed((header("a", 0) * 2) + bytes(1024)),
    "owner": lambda: hostile((info("a", uname="root"), b"")),
    "setuid": lambda: hostile((info("a", mode=0o4755), b"")),
    "escape codes": lambda: hostile((info("a\x1b[2J"), b"")),
    "long name": lambda: hostile((info("a" * 5000), b"")),
    "a size too large": lambda: lying(1 << 32),
    "a size with another checksum": lambda: lying(100),
    "a manifest of gigabytes": lambda: sealed(header("manifest.json", 1 << 30) + bytes(1 << 20)),
    "a key of gigabytes": lambda: sealed(header("audit/public-key.pem", 1 << 30) + bytes(1 << 20)),
    "rows before the key": lambda: sealed(header("audit/rows-000001.jsonl", 0) + bytes(1024)),
    "nothing": lambda: sealed(bytes(1024)),
    "no archive": lambda: sealed(b""),
    "more behind it": lambda: sealed(bytes(1024) + b"more"),
    "hidden in the padding": lambda: sealed(header("a", 1) + b"x" + b"y" * 511 + bytes(1024)),
    "no zstd": lambda: b"x" * 100 + FRAME + hashlib.sha256(b"x" * 100).digest(),
    "empty": lambda: b"",
    "a window of gigabytes": _window,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused(what: str) -> None:
    found = verify_bundle(io.BytesIO(HOSTILE[what]()))
    assert not found.ok
    assert found.problem


def test_a_bomb_takes_no_memory_and_is_left_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_reader, "MOST_BYTES", 64 << 20)
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    chunks = [packer.compress(header("a", 7 << 30))]
    chunks += [packer.compress(bytes(1 << 20)) for _ in range(256)]
    body = b"".join([*chunks, packer.flush()])
    assert len(body) < 1 << 17
    tracemalloc.start()
    found = verify_bundle(io.BytesIO(body + FRAME + hashlib.sha256(body).digest()))
    assert "unpacks to more than" in found.problem
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
