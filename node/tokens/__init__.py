"""Tokens of callers, and the access file that knows their hashes: made and changed."""
