"""Code that backends share: decisions that are made in one place, and readers of the kernel's files."""
