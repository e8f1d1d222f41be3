"""Topics and their messages."""
