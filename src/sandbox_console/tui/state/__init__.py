"""The data that the screens show. It is immutable."""
