"""Reads specs from what other tools have: a docker run line, a compose file, devcontainer.json, a container."""
