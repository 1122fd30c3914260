"""Where this machine's package tools fetch from: learnt from their settings in a home of the test's own, never run."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import structs

from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.service.presets import load_presets
from sandbox_console.service.registries.apt import debian_mirror
from sandbox_console.service.registries.cargo import crates_index
from sandbox_console.service.registries.go import go_proxy
from sandbox_console.service.registries.machine import Machine, Site, pattern_of
from sandbox_console.service.registries.npm import npm_registry
from sandbox_console.service.registries.pip import python_index

PIP = """
class PackageIndex: ...
PyPI = PackageIndex("https://index.example/", file_storage_domain="files.example")
"""
CONSTANTS = "usr/lib/python3/dist-packages/pip/_internal/models/index.py"
NPM = "usr/share/nodejs/npm"
DEFINITIONS = {
    f"{NPM}/package.json": "{}",
    f"{NPM}/node_modules/@npmcli/config/lib/definitions/definitions.js": (
        "  registry: new Definition('registry', {\n    default: 'https://npm.example/',\n    type: url,\n"
    ),
}
DEB822 = """# comment: https://comment.example
Types: deb
URIs: http://deb.example/debian
  https://second.example:8443/debian
Suites: stable

Types: deb
Enabled: no
URIs: http://off.example

Types: deb deb-src
URIs: mirror+file:{etc}/apt/mirrors.list file:/srv/repo cdrom:[x]/
"""
LINES = """
# deb http://comment.example/ stable main
deb [arch=amd64 signed-by=/x] https://user:sesame@one.example/debian stable main # deb http://behind.example
deb-src http://one.example/debian stable main
deb cdrom:[Debian]/ stable main
"""


class Case(NamedTuple):
    """What is on a machine, and the hosts that are learnt from it. ``said`` is in the source or in the problem."""

    learn: object
    files: dict[str, str]
    hosts: str
    said: str
    env: dict[str, str] = {}  # noqa: RUF012 - never changed


CASES = {
    "pip: its own": Case(python_index, {CONSTANTS: PIP}, "index.example files.example", f"from {{at}}/{CONSTANTS}"),
    "pip: none": Case(python_index, {}, "", "no pip is installed here"),
    "pip: of all users": Case(
        python_index,
        {"etc/pip.conf": "[global]\nindex_url = https://m.example/simple\n", CONSTANTS: PIP},
        "m.example",
        "from {at}/etc/pip.conf",
    ),
    "pip: the usual one named": Case(
        python_index,
        {"home/.config/pip/pip.conf": "[global]\nindex-url=https://index.example/simple\n", CONSTANTS: PIP},
        "index.example files.example",
        "from {at}/home/.config/pip/pip.conf, {at}/usr",
    ),
    "pip: user over all, install over global": Case(
        python_index,
        {
            "etc/pip.conf": "[global]\nindex-url = https://weak.example\nextra-index-url = https://extra.example:8080\n",
            "home/.pip/pip.conf": "[global]\nindex-url = https://weak2.example\n",
            "home/.config/pip/pip.conf": "[install]\nindex-url = https://strong.example\n[global]\nindex-url = https://w3\n",
        },
        "strong.example extra.example:8080",
        "pip.conf",
    ),
    "pip: variable": Case(
        python_index,
        {"etc/pip.conf": "[global]\nindex-url = https://weak.example\n", CONSTANTS: PIP},
        "var.example links.example",
        "from PIP_INDEX_URL, PIP_FIND_LINKS",
        {"PIP_INDEX_URL": "https://u:sesame@var.example/x", "PIP_FIND_LINKS": "/srv/wheels https://links.example/w"},
    ),
    "pip: a named file, instead of the user's": Case(
        python_index,
        {
            "named.conf": "[global]\nextra-index-url =\n  https://a.example\n  https://b.example\n",
            "home/.config/pip/pip.conf": "[global]\nindex-url = https://user.example\n",
        },
        "a.example b.example",
        "from {at}/named.conf",
        {"PIP_CONFIG_FILE": "{at}/named.conf"},
    ),
    "pip: no files": Case(
        python_index,
        {"etc/pip.conf": "[global]\nindex-url = https://weak.example\n", CONSTANTS: PIP},
        "index.example files.example",
        CONSTANTS,
        {"PIP_CONFIG_FILE": "/dev/null"},
    ),
    "pip: no index": Case(
        python_index, {"etc/pip.conf": "[global]\nno-index = true\n", CONSTANTS: PIP}, "", "no setting of pip"
    ),
    "pip: broken": Case(
        python_index,
        {"etc/pip.conf": "index-url\n", CONSTANTS: PIP},
        "index.example files.example",
        "pip.conf is not read: it is not in the format",
    ),
    "pip: no URL": Case(
        python_index, {CONSTANTS: PIP}, "", "PIP_INDEX_URL has an address that is no URL with a host",
        {"PIP_INDEX_URL": "https://user:sesame/word@host.example/"},
    ),
    "npm: its own": Case(npm_registry, DEFINITIONS, "npm.example", "definitions.js"),
    "npm: none": Case(npm_registry, {}, "", "no npm is installed here"),
    "npm: npmrc": Case(
        npm_registry,
        DEFINITIONS | {
            "home/.npmrc": "; c\nregistry = 'https://${HOST}.example/'\n@acme:registry=https://acme.example:4873\n"
                           "//acme.example/:_authToken=sesame\n",
            "etc/npmrc": "registry=https://weak.example\n",
        },
        "mine.example acme.example:4873",
        "from {at}/home/.npmrc",
        {"HOST": "mine"},
    ),
    "npm: variable": Case(
        npm_registry, {"home/.npmrc": "registry=https://weak.example\n"}, "var.example", "from NPM_CONFIG_REGISTRY",
        {"NPM_CONFIG_REGISTRY": "https://var.example"},
    ),
    "npm: named files": Case(
        npm_registry,
        {"u": "@a:registry=https://a.example\n", "g": "registry=https://g.example\n", "home/.npmrc": "registry=https://no\n"},
        "g.example a.example",
        "from {at}/g, {at}/u",
        {"npm_config_userconfig": "{at}/u", "npm_config_globalconfig": "{at}/g"},
    ),
    "npm: scoped only": Case(
        npm_registry, DEFINITIONS | {"home/.npmrc": "@a:registry=https://a.example\n"}, "a.example npm.example", "from"
    ),
    "apt: deb822": Case(
        debian_mirror,
        {"etc/apt/sources.list.d/debian.sources": DEB822, "etc/apt/mirrors.list": "https://m.example/debian\tpriority:1\n"},
        "deb.example second.example:8443 m.example",
        "from {at}/etc/apt/sources.list.d/debian.sources",
    ),
    "apt: lines": Case(
        debian_mirror,
        {
            "etc/apt/sources.list": LINES,
            "etc/apt/sources.list.d/x.list": "deb http://[fd00::1]:3142/debian stable main\n",
            "etc/apt/sources.list.d/y.list.disabled": "deb http://off.example stable main\n",
        },
        "one.example [fd00::1]:3142",
        "from {at}/etc/apt/sources.list, {at}/etc/apt/sources.list.d/x.list",
    ),
    "apt: none": Case(debian_mirror, {}, "", "apt has no sources with a host in this machine"),
    "cargo: none": Case(crates_index, {}, "", "cargo's own is inside the program"),
    "cargo: config": Case(
        crates_index,
        {"home/.cargo/config.toml": '[source.crates-io]\nreplace-with = "m"\n[source.m]\n'
                                    'registry = "sparse+https://t:sesame@m.example/index/"\n'
                                    '[registries.acme]\nindex = "https://acme.example/git"\n[source.v]\ndirectory = "v"\n'},
        "m.example acme.example",
        "from {at}/home/.cargo/config.toml; an index may name another host",
    ),
    "cargo: variables": Case(
        crates_index, {"cargo/config": "[x"}, "acme.example", "cargo/config is not read: it is no TOML",
        {"CARGO_HOME": "{at}/cargo", "CARGO_REGISTRIES_ACME_INDEX": "sparse+https://acme.example/"},
    ),
    "go: none": Case(go_proxy, {}, "", "GOPROXY is set neither"),
    "go: installed": Case(
        go_proxy,
        {"usr/lib/go/go.env": "# defaults\nGOPROXY=https://p.example,direct\nGOSUMDB=sum.example\n"},
        "p.example sum.example",
        "from {at}/usr/lib/go/go.env; modules that a proxy does not have",
    ),
    "go: user's": Case(
        go_proxy,
        {"home/.config/go/env": "GOPROXY=https://q.example|off\n", "usr/lib/go/go.env": "GOPROXY=https://p.example\n"},
        "q.example",
        "from {at}/home/.config/go/env",
    ),
    "go: variables": Case(
        go_proxy, {}, "v.example:8080 s.example", "from GOPROXY, GOSUMDB",
        {"GOPROXY": "http://v.example:8080", "GOSUMDB": "name.example+key https://s.example"},
    ),
    "go: off": Case(go_proxy, {}, "", "GOPROXY is set neither", {"GOPROXY": "off"}),
}  # fmt: skip


def machine(at: Path, files: dict[str, str], env: dict[str, str] | None = None) -> Machine:
    (at / "home").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = at / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{etc}", f"{at}/etc"))
    found = {name: value.replace("{at}", str(at)) for name, value in (env or {}).items()}
    return Machine(found, at / "home", at / "etc", (at / "usr",))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_the_tools_settings_say(case: Case, tmp_path: Path) -> None:
    site: Site = case.learn(machine(tmp_path, case.files, case.env))  # type: ignore[operator]
    assert site.hosts == tuple(case.hosts.split()), site
    assert bool(site.problem) is not bool(site.hosts)
    assert case.said.replace("{at}", str(tmp_path)) in (site.source or site.problem)
    assert "sesame" not in repr(site)


GUESTS = {
    python_index: "pip.conf", npm_registry: ".npmrc", crates_index: "config.toml", go_proxy: "env",
    debian_mirror: "sources.list",
}  # fmt: skip
HOSTILE = {
    "pip.conf": "[global]\nindex-url = https://evil.example\n", ".npmrc": "registry=https://evil.example\n",
    "config.toml": '[registries.x]\nindex = "https://evil.example"\n', "env": "GOPROXY=https://evil.example\n",
    "sources.list": "deb http://evil.example stable main\n",
}  # fmt: skip
PLACES = {
    "pip.conf": "home/.config/pip/pip.conf", ".npmrc": "home/.npmrc", "config.toml": "home/.cargo/config.toml",
    "env": "home/.config/go/env", "sources.list": "etc/apt/sources.list",
}  # fmt: skip


@pytest.mark.parametrize("how", ["link", "folder", "given next", "others may write", "relative"])
@pytest.mark.parametrize("learn", GUESTS, ids=lambda learn: learn.__name__)
def test_what_a_guest_or_another_user_may_have_written_is_not_followed(learn, how: str, tmp_path: Path) -> None:
    """By a link from the home, by a folder of the home that a sandbox has or will get, by its mode, and by a name."""
    name = GUESTS[learn]
    mine = tmp_path / PLACES[name]
    workspace = tmp_path / "workspace" if how == "link" else mine.parent
    on = machine(tmp_path, {str((workspace / name).relative_to(tmp_path)): HOSTILE[name]})
    match how:
        case "link":
            mine.parent.mkdir(parents=True, exist_ok=True)
            mine.symlink_to(workspace / name)
            on = structs.replace(on, guest_folders=GuestFolders.of([str(workspace)]))
        case "folder":
            on = structs.replace(on, guest_folders=GuestFolders.of([str(workspace)]))
        case "given next":
            on = structs.replace(on, workspaces=(str(workspace),))
        case "others may write":
            mine.chmod(0o666)
        case "relative":
            named = {"pip.conf": "PIP_CONFIG_FILE", ".npmrc": "npm_config_userconfig", "env": "GOENV"}.get(name)
            if named is None:
                mine.chmod(0o666)
            else:
                mine.rename(tmp_path / "moved")
                on = structs.replace(on, env={named: name})
    site = learn(on)
    assert "evil.example" not in repr(site)
    assert "is not read: " in site.problem


def test_a_wheel_of_pip_that_comes_with_python_says_it_too(tmp_path: Path) -> None:
    on = machine(tmp_path, {"usr/share/python-wheels/x": ""})
    with zipfile.ZipFile(tmp_path / "usr/share/python-wheels/pip-24.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/_internal/models/index.py", PIP)
    assert python_index(on).hosts == ("index.example", "files.example")
    (tmp_path / "usr/share/python-wheels/pip-24.0-py3-none-any.whl").write_bytes(b"PK no zip")
    assert python_index(on).hosts == ()


def test_a_module_of_pip_is_read_and_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    on = machine(tmp_path, {CONSTANTS: f"open({str(ran)!r}, 'w')\n{PIP}"})
    assert python_index(on).hosts
    assert not ran.exists()


def test_an_image_has_an_apt_of_its_own_and_its_links_are_not_followed(tmp_path: Path) -> None:
    image = tmp_path / "image"
    on = machine(tmp_path, {
        "etc/apt/sources.list": "deb http://machine.example stable main\n",
        "image/etc/apt/sources.list": "deb http://image.example stable main\n",
        "image/etc/apt/sources.list.d/x.sources": "URIs: https://other.example\n",
        "image/etc/apt/sources.list.d/x.sources.list": "deb https://third.example stable main\n",
    })  # fmt: skip
    on = structs.replace(on, image=str(image))
    site = debian_mirror(on)
    assert set(site.hosts) == {"image.example", "other.example", "third.example"}
    assert "/etc/apt/sources.list of the image" in site.source
    (image / "etc/apt/sources.list").unlink()
    (image / "etc/apt/sources.list").symlink_to(tmp_path / "etc/apt/sources.list")
    assert "machine.example" not in repr(debian_mirror(on))
    assert "image.example" not in repr(debian_mirror(structs.replace(on, image=str(tmp_path / "gone"))))


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("https://a.example/simple", "a.example"),
        ("http://u:p@A.example:80", "a.example"),
        ("https://a.example:8443/@scope/x", "a.example:8443"),
        ("http://[fd00::1]:3142/", "[fd00::1]:3142"),
        *((bad, None) for bad in ("a.example", "ftp://a.example", "https://", "https://a b/", "https://*/", "https://a:x/",
                                  "https://u:p/w@a.example", "https://[::1", "https://a.example:99999")),
    ],
)  # fmt: skip
def test_only_the_host_of_a_url_is_taken(url: str, pattern: str | None) -> None:
    if pattern is not None:
        assert pattern_of(url) == pattern
        return
    with pytest.raises(ValueError, match=r"."):
        pattern_of(url)


def test_registries_are_presets_unless_the_user_has_one_of_that_name(tmp_path: Path) -> None:
    on = machine(tmp_path, {"etc/pip.conf": "[global]\nindex-url = https://m.example\n"})
    found = {one.name: one for one in load_presets(tmp_path / "config.toml", on)[0]}
    assert (found["pypi"].hosts, found["pypi"].source) == (("m.example",), f"from {tmp_path}/etc/pip.conf")
    for name in ("npm", "debian", "crates", "go"):
        assert found[name].problem.startswith("not known: ")
        assert found[name].hint == f"add [presets.{name}] to {tmp_path}/presets.toml"
    own = tmp_path / "presets.toml"
    own.write_text('[presets.crates]\ntitle = "Ours"\nhosts = ["crates.acme.org"]\n')
    own.chmod(0o600)
    found = {one.name: one for one in load_presets(tmp_path / "config.toml", on)[0]}
    assert (found["crates"].title, found["crates"].hosts, found["crates"].problem) == ("Ours", ("crates.acme.org",), "")
