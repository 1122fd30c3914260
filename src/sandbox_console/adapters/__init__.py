"""Sandboxes behind the interfaces of agents' frameworks. Each has a module that is imported when used."""
