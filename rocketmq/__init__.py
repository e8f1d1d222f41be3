"""Live replication with RocketMQ: a node that follows a broker, and brokers that follow a node."""
