"""What every screen uses: safe text, themes, saved choices."""
