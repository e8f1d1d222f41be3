"""The bytes that RocketMQ's brokers exchange: the HA stream, and remoting."""
