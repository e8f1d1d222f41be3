"""Consumer groups: their members, how far they have come, and moving them."""
