"""RocketMQ's bytes: records, queue units, index, checkpoint. No I/O, no clock."""
