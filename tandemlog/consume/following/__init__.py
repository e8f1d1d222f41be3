"""Following queues: what is fetched ahead of the caller, and what the caller has of it."""
