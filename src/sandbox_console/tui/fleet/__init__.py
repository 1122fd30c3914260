"""The list of sandboxes: rows, columns, groups, filter and command line."""
