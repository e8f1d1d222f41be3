"""The HTTP port: health and metrics."""
