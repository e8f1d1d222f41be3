"""Asking nodes for messages and positions, and checking what they answer."""
