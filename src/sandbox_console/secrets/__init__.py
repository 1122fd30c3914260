"""Where secrets come from, and how their values are kept out of output."""
