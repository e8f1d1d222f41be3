"""The records of transactions: half messages, decisions, and what ends them."""
