"""Reput: what of the commit log goes to queues, index and producers, and in which batches."""
