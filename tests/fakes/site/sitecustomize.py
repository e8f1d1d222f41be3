"""Imported by every Python that starts with this folder on PYTHONPATH: a test driver's planners.

Of a Python data source Spark asks processes of half a dozen kinds what it is, reads and writes. It
puts an archive of PySpark's sources first in their module path, which each kind compiles, for a
second of CPU time. Here they take the installed PySpark, which is the same and compiled. Workers of
tasks are left alone: what they take is the product's doing (tandemlog.spark.python_daemon).
"""

import sys

_ARCHIVE = "/pyspark/python/lib/pyspark.zip"
_started = sys.orig_argv[1:]

# Nothing is imported here: some of them fork later.
if (
    _started[:1] == ["-m"]
    and _started[1].startswith("pyspark.")
    and "pyspark.worker" not in _started
):
    sys.path[:] = [
        each
        for each in sys.path
        if not (each.endswith(_ARCHIVE) and each.removesuffix(_ARCHIVE) in sys.path)
    ]
