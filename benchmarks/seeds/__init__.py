"""The table of the seeds: RocketMQ's client on a node and on its broker, Kafka's on Kafka.

servers.py    a node with its door open, a broker, Kafka: started, with their processor time
java/         the programs that load them: RocketMQ's client, Kafka's, and raw frames
programs.py   compiles and starts those, and asks them for one measurement after the other
profile.py    what one request costs a node, and where
"""
