"""The cluster as clients see it: routes, topics, brokers, and what is handed on to the master."""
