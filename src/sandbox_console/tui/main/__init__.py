"""The main screen: the list, the selected sandbox, and the actions of their keys."""
