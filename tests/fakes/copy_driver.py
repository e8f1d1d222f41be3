"""A program that copies one topic to another with Spark, until a file says that it is enough.

    python -m fakes.copy_driver ENDPOINT FROM TO CHECKPOINT GO_FILE STOP_FILE BATCH

It gets ready, and copies once GO_FILE is there, in batches of BATCH rows and requests of 20. What
is there when STOP_FILE appears is still copied.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tandemlog.spark.session import Profile, spark_session

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def main(arguments: list[str]) -> None:
    endpoint, source, target, checkpoint, go_file, stop_file, batch = arguments
    spark = spark_session("copy", "local[2,4]", Profile.TEST)
    reader = spark.readStream.format("tandemlog").options(
        endpoint=endpoint, topic=source, startingOffsets="earliest", maxOffsetsPerTrigger=batch
    )
    rows = reader.load().select("body", "queue_id", "tags", "keys", "properties")
    writer = rows.writeStream.format("tandemlog").options(
        endpoint=endpoint, topic=target, checkpointLocation=checkpoint, batchMessages=20
    )
    while not Path(go_file).exists():
        time.sleep(0.05)
    if not Path(stop_file).exists():
        copy_until(Path(stop_file), writer.start())
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def copy_until(stop_file: Path, query: "StreamingQuery") -> None:
    while not stop_file.exists():
        if not query.isActive:
            query.awaitTermination()  # raises what ended it
        time.sleep(0.05)
    query.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
