"""Archives of a log in a folder or an object store: how objects are put there and read."""
