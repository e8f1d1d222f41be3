"""The data pipeline: Spark over the cluster and over its files.

    live topics      format("tandemlog")            over gRPC        live, sink
    segment files    format("tandemlog_segments")   local or fetched segments
    tasks of a job   spread over executors                            session_tasks.py

The jobs themselves (rebuild, audit, compare, export, restore, stats) are in tandemlog/logs: they
run without Spark too.

Importing this package imports neither Spark nor Arrow; `tandemlog.spark.session` does.
"""

import tandemlog  # noqa: F401 - before gRPC, and before Spark starts Java: see there
