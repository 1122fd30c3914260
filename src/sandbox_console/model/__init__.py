"""Frozen data that every room speaks: no I/O, nothing imported but the standard library."""
