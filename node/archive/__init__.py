"""The archiver of a node: its thread, its place among the nodes, its numbers."""
