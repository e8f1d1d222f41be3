"""What is wrong with a log, found in parallel and joined at the seams."""
