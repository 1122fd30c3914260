"""Every example of docs/python.md runs on a real sandbox and prints what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from tests.docs.test_readme import PAGES
from tests.support.require import requires

import sandbox_console
from sandbox_console.adapters import a2a, openenv

pytestmark = requires("bubblewrap")

PAGE = PAGES["python.md"]
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = [
    "hello\n\n",
    "0 3\n",
    "False 3 b'out\\n' b'err\\n'\nline 1\nline 2\nline 3\n0\n",
    "b'{\"a\": 1}'\nTrue\nb'started\\n'\n[8000]\n5\n15\n",
    "it has: [secret]\n\n",
    "denied policy.read_only\nnot_found\n",
    "3 ran []\n",
    "v True\n",
]


def test_there_is_a_word_for_each_example() -> None:
    assert len(EXAMPLES) == len(PRINTED)


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_an_example_runs(number: int, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", EXAMPLES[number]], cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=100,
        env=os.environ | {"SANDBOX_CONSOLE_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == PRINTED[number]


def test_the_page_names_only_what_is_exported() -> None:
    named = set(re.findall(r"`([A-Z]\w+)[`(]", PAGE)) | {
        name.strip()
        for line in re.findall(r"^from sandbox_console import (.*)$", PAGE, re.MULTILINE)
        for name in line.split(",")
    }
    assert len(named) > 12
    adapted = {*a2a.__all__, *openenv.__all__}
    assert named - {"TOKEN"} <= set(sandbox_console.__all__) | {"sync"} | adapted
