"""IndexFile: messages by key."""
