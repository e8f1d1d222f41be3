"""Consumer groups: members, their queues and their commits."""
