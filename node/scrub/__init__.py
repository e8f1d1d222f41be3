"""The scrub of a node: its thread, what it asks other nodes, and what it says to them."""
