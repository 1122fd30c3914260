"""What a face may see: one console over every backend."""
