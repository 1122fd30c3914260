"""What all tests share."""

# Imported before a test fails: its pytest plugin imports it while reporting, deep in the stack, and
# CPython 3.11 then gives up on the recursion of the syntax tree.
import hypothesis  # noqa: F401
