"""Generated from proto/tandemlog/rocketmq_v2 by `make proto`. Do not edit."""
