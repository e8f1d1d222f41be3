"""The way of a put through the store: its target, retries, pacing, append."""
