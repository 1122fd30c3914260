"""A terminal emulator as a widget."""
