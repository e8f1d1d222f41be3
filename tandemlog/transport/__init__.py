"""How a process of the cluster, or a client of it, opens a connection and shows who it is."""
