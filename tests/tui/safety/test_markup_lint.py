"""No string that may come from a sandbox is handed to something that parses markup: read from the syntax tree.

A text argument must be a literal, a call of ``plain``, ``plain_text``, ``escaped``, ``Content`` or ``Text``, a call of a
function of tui or web that is annotated to return ``Content`` or ``Text``, or stand beside ``markup=False``.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[3] / "src" / "sandbox_console"
WIDGETS = {
    "Static", "Label", "Button", "Checkbox", "RadioButton", "TabPane", "Tab", "Tabs", "Collapsible", "Option", "OptionList",
    "Selection", "SelectionList", "Select", "Tree", "Placeholder", "Link", "Markdown", "Hit", "DiscoveryHit", "SystemCommand",
    "ToggleButton", "ContentSwitcher",
}  # fmt: skip
METHODS = {
    "update", "add_option", "add_options", "add_column", "add_columns", "add_row", "add_rows", "add", "add_leaf",
    "set_options", "set_content", "from_markup", "update_cell", "write",
}  # fmt: skip
DATA_ONLY = {"add", "update", "write", "add_options", "set_options"}
"""Also methods of sets, dicts and files: only a string built on the spot tells that text is meant."""
TITLES = {"border_title", "border_subtitle", "tooltip", "label", "loading_text"}
KEYWORDS = {
    "label",
    "content",
    "prompt",
    "title",
    "tooltip",
    "renderable",
    "help",
    "display",
    "match_display",
    "placeholder",
}
SAFE_CALLS = {"plain", "plain_text", "escaped", "Content", "Text", "styled", "assemble", "from_text"}


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def returns_renderable(trees):
    return {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name_of(node.returns) in {"Content", "Text"}
    }


def is_safe(node, safe_calls):
    match node:
        case ast.Constant() | ast.Lambda():
            return True
        case ast.Call():
            return name_of(node.func) in safe_calls | WIDGETS or name_of(node.func)[:1].isupper()
        case ast.IfExp():
            return is_safe(node.body, safe_calls) and is_safe(node.orelse, safe_calls)
        case ast.BoolOp():
            return all(is_safe(value, safe_calls) for value in node.values)
        case ast.Starred():
            return is_safe(node.value, safe_calls)
        case ast.Tuple() | ast.List() if node.elts:
            return is_safe(node.elts[0], safe_calls)
        case ast.ListComp() | ast.GeneratorExp():
            return is_safe(node.elt, safe_calls)
        case ast.Tuple() | ast.List():
            return True
        case _:
            return False


def is_text(node):
    return isinstance(node, ast.JoinedStr | ast.BinOp) or (
        isinstance(node, ast.Call) and name_of(node.func) in {"str", "join", "format", "clean"}
    )


def problems(tree, safe_calls):
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            attributes = {target.attr for target in targets if isinstance(target, ast.Attribute)}
            if attributes & TITLES and node.value is not None and not is_safe(node.value, safe_calls):
                yield node.lineno, f"{attributes} = {ast.unparse(node.value)}"
        elif isinstance(node, ast.Call):
            yield from call_problems(node, safe_calls)


def call_problems(node, safe_calls):
    name = name_of(node.func)
    method = isinstance(node.func, ast.Attribute) and name in METHODS
    if not (name in WIDGETS or method):
        return
    if any(k.arg == "markup" and isinstance(k.value, ast.Constant) and k.value.value is False for k in node.keywords):
        return
    values = node.args[:1] if name in WIDGETS - {"Hit"} else node.args
    values = values + [k.value for k in node.keywords if k.arg in KEYWORDS]
    for value in values:
        unsafe = is_text(value) if method and name in DATA_ONLY else not is_safe(value, safe_calls)
        if unsafe and not (isinstance(value, ast.Constant)):
            yield value.lineno, f"{name}({ast.unparse(value)})"


def scan(sources):
    trees = {name: ast.parse(text) for name, text in sources.items()}
    safe_calls = SAFE_CALLS | returns_renderable(trees.values())
    return [f"{name}:{line} {what}" for name, tree in trees.items() for line, what in problems(tree, safe_calls)]


def test_no_text_of_a_sandbox_is_parsed_as_markup():
    files = [path for room in ("tui", "web") for path in (SRC / room).rglob("*.py")]
    assert len(files) > 5
    found = scan({str(path.relative_to(SRC)): path.read_text() for path in files})
    assert found == [], "wrap it in sandbox_console.tui.base.safety.plain (plain_text for tables, trees and RichLog)"


@pytest.mark.parametrize(
    "line",
    [
        "Static(sandbox.name)", "Label(f'x {name}')", "Button(label=name)", "w.border_title = name", "w.tooltip = 'a' + b",
        "table.add_row(name)", "table.add_row(plain_text(a), b)", "table.add_column(str(x))", "w.update(f'{x}')",
        "Static(name if x else 'y')", "OptionList(*names)", "Option(clean(name))", "tree.add_leaf(name)",
        "Hit(1, name, go)", "Content.from_markup(name)", "log.write(f'{x}')", "Select([(name, 1)], prompt=name)",
        "Collapsible(Static('x'), title=name)",
    ],
)  # fmt: skip
def test_the_lint_sees(line):
    assert scan({"x.py": line}) != []


@pytest.mark.parametrize(
    "line",
    [
        "Static('[b]literal[/b]')", "Static(plain(name))", "Label(name, markup=False)", "w.border_title = plain(name)",
        "w.border_title = None", "data.update(other)", "names.add(name)", "table.add_row(plain_text(a), plain_text(b))",
        "def f() -> Content: ...\nStatic(f())", "Static()", "Static(id='x')", "OptionList(*[plain(x) for x in y])",
        "Static(Text('x'))", "Static(plain(a) if b else 'c')", "Collapsible(Static('x'), title='y')",
    ],
)  # fmt: skip
def test_the_lint_lets_pass(line):
    assert scan({"x.py": line}) == []
