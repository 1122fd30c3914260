"""Questions, menus and texts shown over the screen."""
