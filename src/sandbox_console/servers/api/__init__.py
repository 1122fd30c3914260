"""The runtime for a2a_pack's HTTP client, on top of the console's policy, audit log and backends."""
