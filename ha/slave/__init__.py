"""The slave's side: following a master, storing what it sends, acknowledging it."""
