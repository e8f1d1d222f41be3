"""A node that follows a running RocketMQ broker as its slave."""
