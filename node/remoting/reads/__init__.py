"""What clients read: pulls, offsets, queries, and the progress of groups."""
