"""Alerts in the app: which fire, and the page about them."""
