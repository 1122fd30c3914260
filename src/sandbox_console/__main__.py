"""The command ``sandbox-console``: parse the words, then import the one face that they ask for."""
