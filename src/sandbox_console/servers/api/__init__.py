"""The runtime that a2a_pack's HTTP client speaks to, over the console's policy, audit log and backends."""
