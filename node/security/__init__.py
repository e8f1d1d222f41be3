"""A node's certificates and its access file while it runs: read, checked, replaced."""
