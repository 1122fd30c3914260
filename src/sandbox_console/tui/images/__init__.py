"""Images and snapshots of every backend."""
