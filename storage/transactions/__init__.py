"""Half messages on their way into the log."""
