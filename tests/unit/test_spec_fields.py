"""Every face reads and writes the same spec, by the one declaration of its fields."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sandbox_console.cli.parser import parse as parse_words
from sandbox_console.cli.spec_options import from_args
from sandbox_console.errors import InvalidSpec
from sandbox_console.model import check
from sandbox_console.model.action import Create
from sandbox_console.model.capability import Capability
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import BY_NAME, FIELDS, Kind
from sandbox_console.model.spec_schema import spec_schema
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.text.form_values import parse, texts_of

ROOT = Path(__file__).parents[2]
VALIDATOR = Draft202012Validator(spec_schema())

# ⏎ stands for a break of a line in the form: one that is typed is a break, so a new spec has none of it.
line = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="⏎") | st.sampled_from(" '\"$=\\"),
    max_size=12,
)
key = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
path = st.from_regex(r"/[a-z0-9]{1,8}(/[a-z0-9 ._-]{0,8}[a-z])?", fullmatch=True)
host = st.from_regex(r"(\*\.)?[a-z]{1,8}\.[a-z]{2,5}(:[1-9][0-9]{0,3})?", fullmatch=True)
word = st.text(st.characters(codec="utf-8", exclude_characters="\0\r⏎"), min_size=1, max_size=12)
specs = st.builds(
    SandboxSpec,
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True),
    image=st.from_regex(r"[a-z][a-z0-9./:-]{0,20}", fullmatch=True),
    command=st.lists(word, max_size=3).map(tuple),
    env=st.dictionaries(key, line, max_size=2),
    workdir=st.none() | path,
    user=st.none() | key,
    cpus=st.none() | st.floats(0.01, 1e6),
    memory_mib=st.none() | st.integers(4, 10**7),
    pids=st.none() | st.integers(1, 10**6),
    workspace=st.none() | path,
    secrets=st.lists(key, max_size=2, unique=True).map(tuple),
    egress=st.lists(host, max_size=3, unique=True).map(tuple),
    ports=st.lists(st.integers(1, 65535).map(str), max_size=2, unique=True).map(tuple),
    labels=st.dictionaries(key, line, max_size=2),
    max_duration_s=st.none() | st.floats(1e-3, 1e9),
    idle_timeout_s=st.none() | st.integers(1, 10**7).map(float),
    runtime=st.none() | key,
    read_only_root=st.booleans(),
    limits=st.sampled_from(["strict", "best-effort"]),
    seccomp=st.sampled_from([None, "off"]),
    ptrace=st.booleans(),
    nested_userns=st.booleans(),
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(specs)
def test_a_spec_comes_back_the_same_from_toml_json_form_and_command_line(spec):
    there_and_back(spec)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(specs)
def test_ten_thousand_specs_come_back_the_same(spec):
    there_and_back(spec)


def there_and_back(spec):
    data = spec.to_dict()
    assert SandboxSpec.from_dict(tomllib.loads(tomli_w.dumps(data))) == spec
    assert SandboxSpec.from_dict(json.loads(json.dumps(data))) == spec
    assert not [error.message for error in VALIDATOR.iter_errors(data)]
    assert parse(texts_of(spec)) == (spec, {})
    if not spec.env:  # a command line that is shown holds no values of variables
        args = parse_words(shlex.split(command_line(Create(spec, "docker", "far")))[1:])
        assert from_args(args, {"name": args.name}) == spec


def test_each_field_is_declared_once_with_the_default_of_the_spec():
    plain = SandboxSpec("x")
    assert sorted(BY_NAME) == sorted(SandboxSpec.__struct_fields__)
    assert len(FIELDS) == len(BY_NAME)
    for field in FIELDS:
        assert not field.needs or Capability(field.needs)
        assert field.name in ("name", "image") or parse({"name": "x", field.name: ""}) == (plain, {}), field.name


def test_the_schema_is_one_and_its_examples_hold():
    Draft202012Validator.check_schema(spec_schema())
    for field in FIELDS:
        assert field.example is None or VALIDATOR.is_valid({"name": "x", field.name: field.example}), field.name


BAD = [
    ("name", "bad name!"), ("name", "x" * 64), ("name", 3), ("image", 1), ("command", "sh"), ("labels", ["a"]), ("env", {"A": 1}),
    ("cpus", 0), ("cpus", "two"), ("memory_mib", 3), ("memory_mib", "512 apples"), ("memory_mib", 1.5), ("pids", -1), ("pids", "x"),
    ("limits", "loose"), ("egress", "a.org"), ("ports", 80), ("secrets", [1]), ("workspace", "relative"), ("workdir", "x"),
    ("user", 5), ("read_only_root", "yes"), ("max_duration_s", 0), ("max_duration_s", "soon"), ("idle_timeout_s", []),
    ("runtime", 0), ("seccomp", "of"), ("ptrace", 1), ("nested_userns", "true"), ("colour", "red"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_bad_value_is_refused_by_the_console_and_by_the_schema(field, value):
    data = {"name": "x", field: value}
    try:
        problems = check.problems(SandboxSpec.from_dict(data))
    except InvalidSpec as error:
        problems = error.problems
    assert problems.get(field)
    assert not VALIDATOR.is_valid(data)


def test_a_size_and_a_time_may_be_written_as_people_do():
    spec = SandboxSpec.from_dict({"$schema": "x.json", "name": "x", "memory_mib": "1.5G", "max_duration_s": "15m"})
    assert (spec.memory_mib, spec.max_duration_s) == (1536, 900)
    assert VALIDATOR.is_valid({"name": "x", "memory_mib": "1.5G", "max_duration_s": "15m"})
    assert BY_NAME["memory_mib"].kind is Kind.SIZE


def test_the_document_is_made_from_the_declarations():
    command = [sys.executable, str(ROOT / "scripts" / "spec_reference.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run python scripts/spec_reference.py"
