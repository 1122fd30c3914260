"""The main screen: the list, the selected sandbox, and what their keys do."""
