"""What the screens show, as frozen data."""
