"""Reput: what of the commit log goes to queues, index and folds, and in which batches."""
