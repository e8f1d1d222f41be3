"""The objects of an archive: their names, and the bytes in them."""
