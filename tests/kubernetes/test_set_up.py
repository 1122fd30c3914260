"""A failure of the set-up of the test cluster is told apart from a failure of a test."""

from __future__ import annotations

import hashlib
import os
import subprocess

from tests.support.kubernetes import FOLDER


def test_a_cache_that_was_changed_is_refused_and_no_test_runs(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubelet").write_text("changed")
    (tmp_path / "stamp-1").write_text(f"{'0' * 64}  bin/kubelet\n")
    done = subprocess.run(
        [FOLDER / "cluster" / "run", "touch", tmp_path / "ran"],
        env=os.environ | {"K8S_NODE_CACHE": str(tmp_path), "K8S_NODE_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 75
    assert "SET-UP FAILED" in done.stderr
    assert "was changed: remove it to build it again" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_cluster_that_runs_already_is_left_alone(tmp_path):
    """A run beside it would end it."""
    for name in ("bin", "state"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin/kubelet").write_text("built")
    (tmp_path / "stamp-1").write_text(f"{hashlib.sha256(b'built').hexdigest()}  bin/kubelet\n")
    (tmp_path / "state/pids").write_text(f"{os.getpid()} apiserver\n")
    done = subprocess.run(
        [FOLDER / "cluster" / "run", "touch", tmp_path / "ran"],
        env=os.environ | {"K8S_NODE_CACHE": str(tmp_path), "K8S_NODE_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, (tmp_path / "ran").exists()) == (75, False)
    assert "a cluster runs already in" in done.stderr
    assert (tmp_path / "state/pids").exists()
