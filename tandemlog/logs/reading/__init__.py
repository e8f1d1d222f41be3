"""Segment files in pieces: where records begin, what they dispatch to."""
