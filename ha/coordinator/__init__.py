"""The coordinator of a cluster: a small linearizable store (docs/coordinator.md)."""
