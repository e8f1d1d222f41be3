"""The door of RocketMQ's 5.x clients: the API apache.rocketmq.v2 over gRPC."""
