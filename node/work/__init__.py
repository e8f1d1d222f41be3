"""Work queues on the node that is the master: leases, retries, dead letters."""
