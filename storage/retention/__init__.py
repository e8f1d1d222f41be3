"""When files of the log may be deleted, and deleting them."""
