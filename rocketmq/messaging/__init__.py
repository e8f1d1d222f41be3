"""What clients of RocketMQ's 5.x API say, and what they are told: pure, without a connection."""
