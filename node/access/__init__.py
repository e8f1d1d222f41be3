"""Who calls, and what it may do: pure decisions, without gRPC, HTTP or files."""
