"""What every command is made of: its options, how it connects, its errors and exit codes."""
