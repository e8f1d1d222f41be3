"""Certificates and tokens."""
