"""Questions, menus and texts over the screen."""
