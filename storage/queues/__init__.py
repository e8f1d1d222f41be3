"""Consume queues: units of 20 bytes, one a message."""
