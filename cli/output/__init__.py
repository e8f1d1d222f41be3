"""Rows, messages and progress, for people and for programs."""
