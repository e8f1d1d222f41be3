"""Files: mapped, pooled, preallocated, and small ones that are replaced atomically."""
