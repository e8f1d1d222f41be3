"""Messages as Arrow columns. Needs pyarrow, the extra `arrow`."""
