"""What an archive costs its node, and how fast cold reads, backups and restores are."""
