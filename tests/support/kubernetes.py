"""Namespaces of the real cluster that ``make test-k8s`` starts, and the stand-in for agent-sandbox's controller."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "kubernetes"
IMAGE = "k8s-node.test/busybox:1"


def kubectl(*words: str, stdin: str = "") -> str:
    done = subprocess.run(
        [os.environ.get("KUBECTL", "kubectl"), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
    return done.stdout


@contextmanager
def namespace() -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    kubectl("apply", "--validate=false", "-f", str(FOLDER / "crds.yaml"))
    for _ in range(300):
        if "default" in kubectl("-n", name, "get", "serviceaccounts", "-o", "name"):
            break
    controller = subprocess.Popen(
        [sys.executable, "-m", "tests.kubernetes.sandbox_controller", name], cwd=FOLDER.parents[1]
    )
    try:
        yield name
    finally:
        controller.kill()
        controller.wait()
        kubectl("delete", "namespace", name, "--wait=false")
