"""Sending messages: batching, sending in order, retrying."""
