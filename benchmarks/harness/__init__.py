"""What the benchmarks share: figures and their goals, nodes, messages, loads."""
