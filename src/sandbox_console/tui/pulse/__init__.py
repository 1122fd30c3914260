"""A page with figures about the whole fleet."""
