"""The master's side: who follows, what is confirmed, which slaves are in sync, terms."""
