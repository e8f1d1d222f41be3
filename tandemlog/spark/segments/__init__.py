"""format("tandemlog_segments")."""
