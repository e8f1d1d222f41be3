"""What a node does with its process: signals, logging, memory."""
