"""Decisions about actions, as pure functions."""
