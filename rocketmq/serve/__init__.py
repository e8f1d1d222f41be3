"""Being followed: what a master shows to the slave brokers of RocketMQ, and to name servers."""
