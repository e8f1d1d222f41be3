"""Where a message waits: the programs that note the moments, and the table of the stages."""
