"""What backends share: decisions that are made once, and readers of the kernel's files."""
