"""Creates a Spark session for tandemlog's sources and jobs.

Every setting here avoids a known pitfall: workers would run `python3` from PATH instead of this
interpreter; loopback TCP costs twice the slot time of a Unix socket for every Python task; Java may
be missing.

    local     this machine, all cores (the default of the commands)
    test      two slots, no UI, two shuffle partitions, a JVM that starts fast
    cluster   a master elsewhere: only what is needed there

A driver on one machine binds to loopback. With another master, executors on other machines must
reach the driver, so the profile follows from the master's address.
"""

import os
import re
import sys
import tempfile
from enum import Enum
from pathlib import Path

from pyspark.sql import SparkSession

from tandemlog.logs.job_errors import PipelineError

from .java import ensure_java
from .spark_version import STREAM_READ, is_at_least, version_fault


class Profile(Enum):
    """What a session is for; see the module."""

    LOCAL = "local"
    TEST = "test"
    CLUSTER = "cluster"


_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOGGING = Path(__file__).with_name("log4j2.properties").resolve()

_ALWAYS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
}

_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""What writes a stream's offsets and commits. Spark's default runs the programs readlink, four
times, and chmod, twice, for each of the two files of a micro-batch; this one runs chmod alone. On a
local disk a rename is atomic either way. Spark 4.0 has it under another name."""

_ON_ONE_MACHINE = {
    "spark.python.daemon.module": "tandemlog.spark.python_daemon",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
}

_SERIAL_GC = "-XX:+UseSerialGC"
"""What Java itself chooses on one core. Short-lived rows take a tenth less CPU time with its small
young generation than with G1's, which may be most of the heap."""
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=40000",
    "-XX:Tier4MinInvocationThreshold=5000",
    "-XX:Tier4CompileThreshold=120000",
    "-XX:Tier4BackEdgeThreshold=320000",
)
"""Eight times the counts after which Java compiles for the second time, which takes the cores from
the tasks. Code that runs for every row reaches them in its first second all the same; code that
plans a query does not."""
_FEW_CORES = 2
_QUICK_START = "-XX:TieredStopAtLevel=1"

_TEST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


def settings(profile: Profile) -> dict[str, str]:
    """The Spark settings of a profile; the caller's own override them."""
    chosen, java = dict(_ALWAYS), []
    if profile is Profile.CLUSTER:
        return chosen
    chosen |= _ON_ONE_MACHINE
    if is_at_least(STREAM_READ):
        chosen["spark.sql.streaming.checkpointFileManagerClass"] = _CHECKPOINTS
    if profile is Profile.TEST:
        chosen |= _TEST
        java.append(_QUICK_START)
    few = profile is Profile.TEST or (os.cpu_count() or 1) <= _FEW_CORES
    if few and not _collector_is_chosen():
        java.append(_SERIAL_GC)
    if few and profile is not Profile.TEST:
        java += _COMPILE_LATER
    if java:
        chosen[_JAVA_OPTIONS] = " ".join(java)
    return chosen


def _collector_is_chosen() -> bool:
    """Whether the environment chooses the collector of every Java; two would be an error."""
    options = (os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    return any(re.search(r"-XX:\+Use\w+GC\b", each) for each in options)


def profile_of(master: str) -> Profile:
    """What a session with this master is for: LOCAL if its executors are on this machine."""
    return Profile.LOCAL if re.match(r"local(\[|-cluster\[|$)", master) else Profile.CLUSTER


def spark_session(
    app: str,
    master: str = "local[*]",
    profile: Profile | None = None,
    extra: dict[str, str] | None = None,
) -> SparkSession:
    """A session for tandemlog's formats and jobs, or the active one.

    `master` as Spark's: local[N], spark://host:port, or sc://host:port for a Connect server, which
    brings its own Java and settings. `profile` None: that of the master. Workers run the same
    Python as this process; on a cluster PYSPARK_PYTHON may name another one, by its path there.
    Raises JavaMissingError, and PipelineError for a PySpark that is too old or too new.
    """
    profile = profile or profile_of(master)
    fault = version_fault()
    if fault is not None:
        raise PipelineError(f"{fault}: pip install 'tandemlog[spark]'")
    if profile is not Profile.CLUSTER or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("sc://"):
        return SparkSession.builder.appName(app).remote(master).getOrCreate()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tandemlog"
    os.environ["JAVA_HOME"] = str(ensure_java(os.environ, cache))
    # Read when the JVM starts: from then on Spark logs errors alone.
    logging_option = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    builder = SparkSession.builder.appName(app).master(master)
    scratch = Path(tempfile.gettempdir()) / f"tandemlog-spark-{os.getuid()}"
    chosen = settings(profile) | {"spark.sql.warehouse.dir": str(scratch / "warehouse")}
    chosen |= extra or {}
    java_options = f"{logging_option} {chosen.get(_JAVA_OPTIONS, '')}".strip()
    for key, value in (chosen | {_JAVA_OPTIONS: java_options}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
