"""How fast messages go that are delayed, sent in transactions, or shared out as work."""
