"""The parts of a sandbox's supervisor.

They use the standard library only, and import nothing after joining a namespace.
"""
