"""What every screen stands on: safe text, themes, saved choices."""
