"""The configuration file of a node and where its values come from."""
