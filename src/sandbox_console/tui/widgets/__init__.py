"""The widgets that the screens are built from."""
