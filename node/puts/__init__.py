"""Writes of messages: decoding, appending in batches, waiting for the confirm offset."""
