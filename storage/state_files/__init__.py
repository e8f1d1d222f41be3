"""Small files that say what was durable, and how the last process ended."""
