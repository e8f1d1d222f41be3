"""A node: one store, its role, its services and its settings; and the program `tandemlog`."""
