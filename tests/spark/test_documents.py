"""What the documents tell people to run does run, in the order in which it stands there."""

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from fakes.built_archives import archive_log
from fakes.log_builder import LogBuilder, varied
from helpers.running import Running
from tandemlog import Admin, Consumer, Producer
from tandemlog.archive.folder_store import FolderStore
from tandemlog.logs.executors import InProcess
from tandemlog.logs.jobs.rebuild import RebuildOptions, rebuild
from tandemlog_server.cli import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
SIZES = ["--index-slots", "20", "--index-entries", "100", "--queue-file-size", "200"]
ROWS = 40


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of the pipeline's document, or of the README's section on it."""
    text = (ROOT / document).read_text()
    if document == "README.md":
        [text] = re.findall(r"^## Spark\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def with_store(folder: Path) -> LogBuilder:
    log = varied(LogBuilder(folder / "store", 16384))
    log.write()
    return log


def stored(cluster: Running, topic: str) -> int:
    with (
        Consumer(cluster.endpoints, read_from="master") as consumer,
        consumer.follow(topic, until_end=True) as stream,
    ):
        return sum(1 for _ in stream)


@pytest.fixture(scope="module")
def orders(cluster: Running) -> None:
    names = ("orders", "orders-archive", "orders-copy", "orders-large", "orders-mirror")
    with Admin(cluster.endpoints) as admin:
        for topic in names:
            admin.create_topic(topic, 4)
    with Producer(cluster.endpoints) as producer:
        producer.send_many(
            "orders",
            [b"order" + b"!" * (number % 2 * 10) for number in range(ROWS)],
            keys=[f"k{number}" for number in range(ROWS)],
            tags="paid",
        )


@pytest.mark.spark
@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("document", "copies"),
    [
        (
            "docs/pipeline.md",
            {"orders-archive": ROWS + 1, "orders-copy": ROWS, "orders-large": ROWS // 2},
        ),
        ("README.md", {"orders-mirror": ROWS}),
    ],
)
def test_examples(
    spark: "SparkSession",
    cluster: Running,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    document: str,
    copies: dict[str, int],
) -> None:
    log = with_store(tmp_path)
    archive_log(FolderStore(tmp_path / "archive"), log, 4000)
    examples = blocks(document, "python")
    names: dict[str, Any] = {}
    for example in examples:
        code = example.replace("10.0.0.1:10911,10.0.0.2:10911", ",".join(cluster.endpoints))
        code = code.replace("10.0.0.1:10911", cluster.master.endpoint)
        code = code.replace("s3://backups/shop", str(tmp_path / "archive"))
        code = code.replace("1777593600000", str(log.records[0].store_timestamp))
        code = code.replace("/data/", f"{tmp_path}/")
        exec(compile(code, document, "exec"), names)
    if "listener" in names:
        spark.streams.removeListener(names["listener"])
    assert examples
    assert names["spark"] is spark
    assert {topic: stored(cluster, topic) for topic in copies} == copies
    printed = capsys.readouterr().out
    if document != "README.md":
        assert f"{len(log.records)} True" in printed
        assert f"{sum(each.topic == 'Orders' for each in log.records)} orders since May" in printed
    assert log.records[0].topic in printed


def test_commands(tmp_path: Path) -> None:
    store = with_store(tmp_path).store
    rebuild(InProcess(), store, store, RebuildOptions(True, True, 20, 100, 200))
    lines = [line for block in blocks("docs/pipeline.md", "sh") for line in block.splitlines()]
    jobs = [line for line in lines if "/data/" in line]
    assert len(jobs) == 8
    for line in jobs:
        program, *arguments = shlex.split(line.replace("/data/", f"{tmp_path}/"), comments=True)
        assert program == "tandemlog"
        here = ["--master", "none"] if arguments[0] == "pipeline" else []
        result = CliRunner().invoke(app.app, [*arguments, *SIZES, *here])
        assert result.exit_code == 0, result.output
