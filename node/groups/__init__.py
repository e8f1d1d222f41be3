"""Groups of consumers: who is a member, and which member owns which queue (decision 0036)."""
