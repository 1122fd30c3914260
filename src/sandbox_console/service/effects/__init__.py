"""What a permitted action does."""
