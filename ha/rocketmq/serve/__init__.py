"""A master that RocketMQ brokers follow as its slaves."""
