"""RocketMQ's SQL92 filters: parsed once, evaluated over the properties of many records at once."""
