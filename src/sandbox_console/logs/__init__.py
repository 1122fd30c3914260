"""Log lines in memory: storing, merging, searching and formatting them. No I/O."""
