"""The nodes of a cluster, and who leads."""
