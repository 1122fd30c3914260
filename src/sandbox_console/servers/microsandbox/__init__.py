"""The server of microsandbox 0.1 and 0.2 for their old clients, on top of the console's policy, audit and backends."""
