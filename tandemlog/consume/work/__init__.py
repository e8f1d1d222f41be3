"""Work queues: messages that are leased to one consumer, and acknowledged one by one."""
