"""Code that the backends share: decisions that belong in one place, and readers of the kernel's files."""
