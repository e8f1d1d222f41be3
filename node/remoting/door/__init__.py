"""Connections of the remoting wire: accepted, proved, bounded, answered."""
