"""Reads of messages: pulls, long polls, segments, and whose turn it is."""
