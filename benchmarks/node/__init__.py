"""What a running node needs: memory, many topics at once, its start after a crash, its console."""
