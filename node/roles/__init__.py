"""What a node may do, by its role: see role.py."""
