"""Transactions on the node that is the master: what it asks about, and what it does by itself."""
