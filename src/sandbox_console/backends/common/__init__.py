"""What backends have in common: decisions that are made once, and readers of the kernel's files."""
