"""A process with the imports of a command in memory, which forks a child for each command: docs/cli.md, Start-up."""
