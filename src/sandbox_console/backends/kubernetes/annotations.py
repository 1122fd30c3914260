"""The annotations by which the console recognises what it made. Whoever may change the object can change them."""

SPEC = "sandbox-console.spec"
"""The spec as requested, as JSON. It contains only the names of secrets."""

INSTALLATION = "sandbox-console.installation"
"""The installation that made it: several consoles may share a cluster."""

STARTED = "sandbox-console.started"
"""Set by the first start: a Sandbox without it was created and never ran."""

STOPPED = "sandbox-console.stopped"
"""When a console suspended it last: its Pod, which would tell its end, is gone."""
