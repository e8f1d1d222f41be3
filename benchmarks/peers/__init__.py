"""Other message logs beside this one. Imports nothing: their clients' own environments run parts
of this package."""
