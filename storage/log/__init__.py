"""The commit log: appending, flushing, reading, finding its end."""
