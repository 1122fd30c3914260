"""The app's pages of recordings: the list with its search, and the player."""
