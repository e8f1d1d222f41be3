"""Finding and reaching the nodes of a cluster."""
