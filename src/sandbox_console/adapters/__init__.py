"""The console's sandboxes under the interfaces that agents' frameworks have: a module for each, imported when used."""
