"""The data pipeline: Spark over the cluster and over its files.

    live topics      format("tandemlog")            over gRPC        live.py, writer.py
    segment files    format("tandemlog_segments")   local or fetched segments.py
    jobs             rebuild audit compare export restore stats      jobs/

Importing this package imports neither Spark nor Arrow; `tandemlog.spark.session` does.
"""

import tandemlog  # noqa: F401 - before gRPC, and before Spark starts Java: see there
