"""Scrub: what is stored is read again, compared with other copies, and mended."""
