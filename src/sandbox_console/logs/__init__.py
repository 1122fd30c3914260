"""The store of log lines on screen: pure."""
