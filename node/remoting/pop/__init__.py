"""RocketMQ's POP mode: messages are leased one by one, by the engine of the work queues."""
