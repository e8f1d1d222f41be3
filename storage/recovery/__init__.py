"""What an open, a promotion and a truncation do to make everything agree with the log."""
