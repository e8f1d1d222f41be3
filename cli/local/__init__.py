"""A cluster on this machine: its processes, its folder, its drills."""
