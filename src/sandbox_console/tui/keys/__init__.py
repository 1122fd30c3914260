"""The keys and their actions."""
