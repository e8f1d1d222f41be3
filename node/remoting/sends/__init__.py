"""What clients store: sends, messages sent back, transactions, replies."""
