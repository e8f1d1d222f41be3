"""Tables that are replicated beside the log: topics, consumer offsets, epochs."""
