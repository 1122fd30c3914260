"""The conformance suite and the fake backend, for anyone who writes a backend."""
