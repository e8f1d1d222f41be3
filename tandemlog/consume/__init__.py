"""Reading messages: following queues, positions, what an answer means."""
