"""What runs in executors: writing queues, index, archives."""
