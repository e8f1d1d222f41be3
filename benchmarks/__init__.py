"""Figures of the product against its goals; `python -m benchmarks` runs them all.

store         messages into one node's files, and out of them
node          a running node: memory, topics, starts, console
clients       puts and pulls through the client
messaging     delays, transactions, work queues
replication   slaves, failover, elected masters
archive       archive, backup, restore
spark         Spark over files and over a live cluster
stages        where a message waits on its way
peers, seeds  other message logs beside this one, and their clients on a node
harness       what all of them share, and the load that many of them measure

A package imports from itself and the harness; stages and seeds also from peers.
history.py keeps the ratios of each run in history.jsonl.
"""
