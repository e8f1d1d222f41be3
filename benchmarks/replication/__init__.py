"""How fast a slave catches up, how long a failover takes, and what an elected master costs."""
