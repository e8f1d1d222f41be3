"""Who calls, and what it may do; access_editing.py changes the access file."""
