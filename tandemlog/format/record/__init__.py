"""One record of the commit log, and what it is made of."""
