"""One feed of denials: every sandbox is in it, by one watch on files or in turn, and every view draws from it."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager

from msgspec import structs
from tests.service.conftest import REF

from sandbox_console.backends.common import notify
from sandbox_console.egress.records import Recorder
from sandbox_console.errors import BackendError
from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.event import Changed, Denied, Removed
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.service.reads import denials as denials_module
from sandbox_console.service.reads import record_reader
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within


def box_of(number, *, egress=("acme.org",)):
    name = f"box-{number:05}"
    spec = SandboxSpec(name, image="x", egress=egress)
    return Sandbox(structs.replace(REF, id=name), name, Status.RUNNING, "x", spec=spec)


def denied(at, host="evil.example", *, allowed=False):
    return EgressRecord(at, "x", host, 443, allowed)


class Counting(FakeBackend):
    """Counts what it is asked."""

    lists = 0

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.read = []

    async def list(self):
        self.lists += 1
        return await super().list()

    async def egress_records(self, ref, *, since, follow):
        self.read.append(ref.id)
        async for one in super().egress_records(ref, since=since, follow=follow):
            yield one


class OnDisk(Counting):
    """Its records are files."""

    def __init__(self, folder, *args, **options):
        super().__init__(*args, **options)
        self.folder = folder

    async def egress_folder(self, ref):
        return self.folder / ref.id


@asynccontextmanager
async def console_of(fake):
    async with open_console(Config(backend="fake"), backends=[fake]) as console:
        subscription = console.watch()
        yield console
        subscription.close()


async def until(check):
    async with asyncio.timeout(60):
        while not check():
            await asyncio.sleep(0.01)


def told(console):
    """What a viewer who comes now is told of denials."""
    viewer = console.hub.subscribe()
    found = {event.ref.id: event.count for event in viewer._states.values() if isinstance(event, Denied)}
    viewer.close()
    return found


async def test_all_sandboxes_are_in_it_and_no_list_is_asked_for_it(home, monkeypatch):
    monkeypatch.setattr(record_reader, "ROUND_S", 0.01)
    boxes = [box_of(number) for number in range(200)]
    within = Within(egress={box.ref.id: [denied(1.0), denied(2.0)] for box in boxes[::20]})
    fake = Counting(boxes, within=within)
    async with console_of(fake) as console:
        await until(lambda: len(told(console)) == 10)
        assert set(told(console).values()) == {2}
        lists = fake.lists
        await fake.record(boxes[1].ref, denied(3.0))
        await until(lambda: told(console).get("box-00001") == 1)
        await until(lambda: fake.read.count("box-00199") > 3)
        assert fake.lists == lists
        [seen] = console.denials.everything.hosts()
        assert (seen.denied, len(seen.refs)) == (21, 11)


async def test_without_files_each_is_read_once_before_any_is_read_again_and_those_in_view_first(home, monkeypatch):
    monkeypatch.setattr(record_reader, "ROUND_S", 0.0)
    boxes = [box_of(number) for number in range(30)] + [box_of(77, egress=())]

    class Shown(Counting):
        async def egress_records(self, ref, *, since, follow):
            console.denials.show([boxes[29].ref])
            async for one in super().egress_records(ref, since=since, follow=follow):
                yield one

    fake = Shown(boxes)
    async with console_of(fake) as console:
        await until(lambda: len(fake.read) > 80)
    assert "box-00029" in fake.read[1:3], "it is in view"
    unseen = [one for one in fake.read if one != "box-00029"]
    assert sorted(unseen[:29]) == [box.ref.id for box in boxes[:29]]


async def test_reads_are_few_a_second(home, monkeypatch):
    slept = []

    async def rest(seconds):
        slept.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(record_reader, "_rest", rest)
    monkeypatch.setattr(record_reader, "ROUND_S", 0.0)
    fake = Counting([box_of(number) for number in range(20)])
    async with console_of(fake):
        await until(lambda: len(slept) > 40)
    assert min(slept[:20]) >= 1 / 400
    assert min(slept[20:40]) >= 1 / 100


async def test_one_that_tells_nothing_new_is_asked_less_and_less_often_until_it_does(home, monkeypatch):
    monkeypatch.setattr(record_reader, "_rest", lambda _: asyncio.sleep(0))
    box = box_of(1)
    fake = Counting([box])
    pauses = []
    async with console_of(fake) as console:
        await until(lambda: fake.read)
        [reader] = console.denials._readers.values()
        monkeypatch.setattr(reader, "_later", lambda _, seconds: pauses.append(seconds))

        async def ask(times):
            for _ in range(times):
                before = len(pauses)
                reader._ready(box.ref)
                await until(lambda before=before: len(pauses) > before)

        await ask(7)
        assert pauses == sorted(pauses)
        assert pauses[-1] == record_reader.QUIET_S
        console.denials.show([box.ref])
        await until(lambda: len(pauses) == 8)
        assert pauses[-1] == record_reader.QUIET_SHOWN_S, "it came into view, and is asked at once"
        await fake.record(box.ref, denied(1.0))
        await ask(1)
        assert pauses[-1] == record_reader.ROUND_S


async def test_one_that_goes_while_another_is_read_does_not_end_the_reading(home, monkeypatch):
    monkeypatch.setattr(record_reader, "ROUND_S", 0.0)
    boxes = [box_of(number) for number in range(3)]

    class Dropping(Counting):
        async def egress_records(self, ref, *, since, follow):
            [reader] = console.denials._readers.values()
            for other in boxes[1:]:
                reader.drop(other.ref)
            async for one in super().egress_records(ref, since=since, follow=follow):
                yield one

    fake = Dropping(boxes)
    async with console_of(fake) as console:
        await until(lambda: fake.read.count("box-00000") > 3)


async def test_files_of_all_are_followed_by_one_watch(home, tmp_path, monkeypatch):
    made = []

    class Folders(notify.Folders):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(notify, "Folders", Folders)
    boxes = [box_of(number) for number in range(200)]
    for box in boxes:
        (tmp_path / box.ref.id).mkdir()
    Recorder(tmp_path / "box-00003").write(denied(1.0))
    fake = OnDisk(tmp_path, boxes)
    async with console_of(fake) as console:
        await until(lambda: told(console) == {"box-00003": 1})
        await until(lambda: len(made[0]._names) == 200)
        tasks = len(asyncio.all_tasks())
        late = Recorder(tmp_path / "box-00100")
        late.write(denied(2.0))
        late.write(denied(3.0, allowed=True))
        late.write(denied(4.0, "worse.example"))
        await until(lambda: told(console) == {"box-00003": 1, "box-00100": 2})
        assert [seen.host for seen in console.denials.of(boxes[100].ref).hosts()] == ["worse.example", "evil.example"]
        assert (len(made), fake.read) == (1, [])
        assert tasks < 20
        await fake.tell(Removed(boxes[100].ref))
        await until(lambda: told(console) == {"box-00003": 1})
        assert [seen.denied for seen in console.denials.everything.hosts()] == [1], "its counts went with it"


async def test_a_folder_that_comes_later_and_one_that_is_made_anew_are_read(home, tmp_path, monkeypatch):
    monkeypatch.setattr(record_reader, "_MISSING_S", 0.02)
    box = box_of(1)
    async with console_of(OnDisk(tmp_path, [box])) as console:
        await until(lambda: console.denials._readers)
        (tmp_path / box.ref.id).mkdir()
        Recorder(tmp_path / box.ref.id).write(denied(1.0))
        await until(lambda: told(console) == {box.ref.id: 1})
        shutil.rmtree(tmp_path / box.ref.id)
        await asyncio.sleep(0.5)
        (tmp_path / box.ref.id).mkdir()
        Recorder(tmp_path / box.ref.id).write(denied(2.0))
        await until(lambda: told(console) == {box.ref.id: 2})


async def test_a_long_record_is_read_in_parts(home, tmp_path, monkeypatch):
    monkeypatch.setattr(record_reader, "READ_MOST", 4096)
    box = box_of(1)
    (tmp_path / box.ref.id).mkdir()
    recorder = Recorder(tmp_path / box.ref.id, size=20_000)
    (tmp_path / box.ref.id / "records.4.jsonl").write_bytes(b"x" * 9000 + b"\n")
    for at in range(600):
        recorder.write(denied(float(at), f"host-{at}.example"))
    async with console_of(OnDisk(tmp_path, [box])) as console:
        await until(lambda: told(console) == {box.ref.id: 600})


async def test_what_cannot_be_read_is_named_until_it_can_be(home, monkeypatch):
    monkeypatch.setattr(record_reader, "AGAIN_S", 0.02)
    box = box_of(1)
    fake = Counting([box], within=Within(egress={box.ref.id: [denied(1.0)]}))
    fake.faults.verbs["egress_records"] = BackendError("its records are locked")
    async with console_of(fake) as console:
        await until(lambda: console.denials.unread)
        assert console.denials.unread == {box.ref: ("box-00001", "its records are locked")}
        fake.faults.verbs.clear()
        await until(lambda: not console.denials.unread and told(console) == {box.ref.id: 1})


async def test_hosts_of_all_are_bounded_and_the_one_with_the_most_pays(home, monkeypatch):
    monkeypatch.setattr(denials_module, "ALL_HOSTS_MOST", 50)
    loud, quiet = box_of(1), box_of(2)
    flood = [denied(float(at), f"h{at}.example") for at in range(300)]
    fake = Counting([loud, quiet], within=Within(egress={loud.ref.id: flood, quiet.ref.id: [denied(1.0)]}))
    async with console_of(fake) as console:
        await until(lambda: told(console) == {loud.ref.id: 300, quiet.ref.id: 1})
        assert len(console.denials.everything) <= 50
        assert len(console.denials.of(quiet.ref)) == 1
        assert console.denials.everything.forgotten > 200


async def test_one_that_loses_its_way_out_is_left_out(home):
    box = box_of(1)
    fake = Counting([box], within=Within(egress={box.ref.id: [denied(1.0)]}))
    async with console_of(fake) as console:
        await until(lambda: told(console))
        await fake.tell(Changed(structs.replace(box, spec=structs.replace(box.spec, egress=()))))
        await until(lambda: not len(console.denials.everything))
