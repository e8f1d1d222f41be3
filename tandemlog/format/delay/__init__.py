"""Messages that come later: their times, their waiting records, and what is made of those."""
