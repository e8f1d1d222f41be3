"""What RocketMQ's clients say and hear: requests read, answers written, tables; pure code."""
