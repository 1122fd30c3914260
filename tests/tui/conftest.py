"""Every app of a worker shares the parsed style sheets."""

from tests.support.stylesheets import share

share()
