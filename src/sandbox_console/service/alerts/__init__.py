"""Alerts: rules are watched, what they find is kept in the state folder and sent until it has arrived."""
