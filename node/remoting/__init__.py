"""The door for RocketMQ's own clients: the remoting wire in, the calls of the node behind it."""
