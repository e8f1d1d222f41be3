"""The clients themselves: heartbeats, members of groups, locks of queues."""
