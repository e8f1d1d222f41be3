"""Keeping an archive of the log: what to do next, and the bytes to do it with."""
