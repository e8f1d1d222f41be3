"""Where a message waits: the programs that note the moments, and the arithmetic of the table."""
