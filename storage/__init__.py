"""The store of one node: RocketMQ's files, written and read by one process, without a network.

message_store.py is the whole; tools/ works on a store that no node has open. Import the module that
has the name: nothing is exported from here.
"""
