"""Sizes for fingers: in a browser on a phone a row, a tab, a key and a button have two lines, which are 44 pixels."""

from __future__ import annotations

import os
from typing import Any

from textual.app import App

VARIABLE = "SANDBOX_CONSOLE_TOUCH"
"""Set by the page's server for a browser whose pointer is a finger."""
CLASS = "-touch"
LINES = 2
"""The lines of whatever is to be hit; the page makes each 22 pixels high."""
_CSS = """
KeyBar, KeyBar FooterKey { height: 2; }
TabBar { height: 4; padding: 0; }
TabLine { height: 2; }
Button { height: 2; }
FormBody Horizontal { height: auto; min-height: 2; }
FormBody Input, FormBody Select, FormBody Checkbox { height: 2; }
FormSection CollapsibleTitle { height: 2; }
EgressRow .list-actions Button { height: 2; }
"""


def mark_touch(app: App[Any]) -> None:
    """Let the app draw for fingers, if a finger is what points at it."""
    if os.environ.get(VARIABLE) == "1":
        vars(app)["CSS"] = _CSS  # only here, as every rule costs each start its parsing
        app.add_class(CLASS)


def by_touch(app: App[Any]) -> bool:
    """Whether a finger points at the app."""
    return app.has_class(CLASS)
