"""No part of the house needs a part that needs it: read from every import, also those in functions and for types only."""

from __future__ import annotations

import grimp


def circles(imports):
    """Groups of modules of which each leads to each other (Tarjan's strongly connected components, without recursion)."""
    order, lowest, open_, found = {}, {}, [], []
    for start in imports:
        if start in order:
            continue
        walk = [(start, iter(imports[start]))]
        order[start] = lowest[start] = len(order)
        open_.append(start)
        while walk:
            module, rest = walk[-1]
            for other in rest:
                if other not in order:
                    order[other] = lowest[other] = len(order)
                    open_.append(other)
                    walk.append((other, iter(imports[other])))
                    break
                if other in open_:
                    lowest[module] = min(lowest[module], order[other])
            else:
                walk.pop()
                if walk:
                    lowest[walk[-1][0]] = min(lowest[walk[-1][0]], lowest[module])
                if lowest[module] == order[module]:
                    group = open_[open_.index(module) :]
                    del open_[open_.index(module) :]
                    if len(group) > 1:
                        found.append(sorted(group))
    return found


def test_no_modules_import_each_other_in_a_circle():
    graph = grimp.build_graph("sandbox_console", exclude_type_checking_imports=False, cache_dir=None)
    modules = {one for one in graph.modules if one.partition(".")[0] == "sandbox_console"}
    assert len(modules) > 300
    assert circles({one: graph.find_modules_directly_imported_by(one) & modules for one in modules}) == []


def test_a_circle_is_found():
    assert circles({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}) == [["b", "c"]]
