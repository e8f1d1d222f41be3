"""Generated from proto/tandemlog/v1 by `make proto`. Do not edit."""
