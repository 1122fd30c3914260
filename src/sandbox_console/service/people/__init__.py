"""The people of a team: users with passwords, roles and scopes, in the file that has the tokens."""
