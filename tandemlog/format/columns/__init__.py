"""Many records at once, by columns: walking, encoding, checking, dispatching."""
