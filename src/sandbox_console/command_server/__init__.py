"""A process that has the imports of a command behind it and forks a child for each: see docs/cli.md, Start-up."""
