from __future__ import annotations

import struct

from sandbox_console.backends.docker.podman_dialect import adapt, in_dockers_words, is_podman, stable
from sandbox_console.backends.docker.podman_logs import PodmanDemuxer, PodmanTtySplitter
from sandbox_console.model.log import Stream


def frame(kind, text):
    return struct.pack(">BxxxL", kind, len(text)) + text


def test_podman_is_known_by_its_info_and_keeps_one_id():
    info = {"ID": "random-1", "Name": "vm", "DockerRootDir": "/var/lib/containers/storage", "BuildahVersion": "1.28.2"}
    assert is_podman(info)
    assert not is_podman({"ID": "x", "Name": "vm"})
    assert stable(info)["ID"] == stable({**info, "ID": "random-2"})["ID"] != stable({**info, "Name": "other"})["ID"]


def test_a_request_has_nothing_that_podman_refuses():
    body = {
        "HostConfig": {
            "LogConfig": {"Type": "local", "Config": {"max-size": "10m", "max-file": "3"}},
            "Tmpfs": {"/tmp": "rw,size=1m,nr_inodes=64k,mode=1777"},
            "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        }
    }
    adapt(body)
    host = body["HostConfig"]
    assert host["LogConfig"] == {"Type": "k8s-file", "Config": {"max-size": "30m"}}
    assert host["Tmpfs"] == {"/tmp": "rw,size=1m,mode=1777"}
    assert [one["Name"] for one in host["Ulimits"]] == ["core", "nproc"]


def test_walls_have_the_names_that_docker_gives_them():
    dropped = [
        f"CAP_{name}"
        for name in [
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "FSETID",
            "KILL",
            "NET_BIND_SERVICE",
            "SETFCAP",
            "SETGID",
            "SETPCAP",
            "SETUID",
        ]
    ]
    data = {
        "State": {"Health": {"Status": ""}},
        "HostConfig": {
            "CapDrop": dropped,
            "Ulimits": [{"Name": "RLIMIT_CORE", "Soft": 0, "Hard": 0}],
            "Runtime": "oci",
        },
    }
    found = in_dockers_words(data)
    assert found["HostConfig"]["CapDrop"] == ["ALL"]
    assert found["HostConfig"]["Ulimits"][0]["Name"] == "core"
    assert "Health" not in found["State"]
    few = {"State": {}, "HostConfig": {"CapDrop": dropped[:3]}}
    assert in_dockers_words(few)["HostConfig"]["CapDrop"] == dropped[:3]


def test_times_in_any_zone_and_frames_that_are_cut():
    data = frame(1, b"2026-11-24T15:14:12+01:00 one\n") + frame(2, b"2026-11-24T14:14:13Z two words\n")
    for cut in range(len(data)):
        splitter = PodmanDemuxer()
        records = [*splitter.feed(data[:cut]), *splitter.feed(data[cut:]), *splitter.flush()]
        assert [(one.stream, one.data) for one in records] == [
            (Stream.STDOUT, b"one\n"),
            (Stream.STDERR, b"two words\n"),
        ]
        assert records[1].at_ns - records[0].at_ns == 10**9


def test_a_terminals_log_keeps_text_without_a_time():
    splitter = PodmanTtySplitter()
    records = [
        *splitter.feed(b"2026-11-24T14:14:12Z one\r\nno time\n2026-11-24T14:14:13Z la"),
        *splitter.feed(b"st"),
        *splitter.flush(),
    ]
    assert [one.data for one in records] == [b"one\r\n", b"no time\n", b"last"]
    assert {one.stream for one in records} == {Stream.TTY}
