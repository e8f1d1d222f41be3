"""Count the messages of every topic of a live cluster with Spark.

The cluster, its authority and the token come from the variables that the program `tandemlog` reads
too: TANDEMLOG_ENDPOINT, TANDEMLOG_CA_FILE, TANDEMLOG_TOKEN_FILE.
"""

import os

from pyspark.sql import functions as sql

import tandemlog
from tandemlog.spark.session import spark_session

endpoint = os.environ["TANDEMLOG_ENDPOINT"]
ca_file, token_file = os.environ["TANDEMLOG_CA_FILE"], os.environ["TANDEMLOG_TOKEN_FILE"]

security = tandemlog.Security(ca_file=ca_file, token_file=token_file)
with tandemlog.Admin(endpoint, security=security) as admin:
    topics = sorted(topic.name for topic in admin.topics())

spark = spark_session("count")
for topic in topics:
    live = (
        spark.read.format("tandemlog")
        .option("endpoint", endpoint)
        .option("caFile", ca_file)
        .option("tokenFile", token_file)
        .option("topic", topic)
        .load()
    )
    [row] = live.agg(
        sql.count("*").alias("messages"), sql.sum(sql.length("body")).alias("body_bytes")
    ).collect()
    print(
        f"{topic}: {row.messages:,} messages, {row.body_bytes or 0:,} bytes of bodies", flush=True
    )
spark.stop()
