"""A plain client: everything that is done with messages works where numpy is not installed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tandemlog.testing import Cluster

WITHOUT = """
import sys

class NoNumpy:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "numpy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoNumpy())
import json
from array import array
from tandemlog import Admin, Consumer, Message, Producer
endpoint = sys.argv[1]
said = {}
"""

SEND = """
with Producer(endpoint) as producer:
    futures = [
        producer.send(Message("t", b"s%d" % n, keys=["k", f"s{n}"], tags="single", queue_id=0))
        for n in range(200)
    ]
    said["single"] = [future.result().queue_offset for future in futures]
    said["found"] = futures[7].result().msg_id
    messages = [
        Message("t", b"m%d" % n, tags="object", properties={"n": str(n)}, queue_id=n % 2)
        for n in range(200)
    ]
    many = producer.send_many(None, messages)
    said["objects"] = [many.queue_ids.tolist(), many.queue_offsets.tolist(), many.count]
    bodies = producer.send_many(
        "t", [b"b%d" % n for n in range(100)], keys=[f"b{n} c" for n in range(100)], tags="body",
        queues=[1] * 100,
    )
    said["bodies"] = bodies.queue_offsets.tolist()
    text = producer.send_many("t", (f"i{n}".encode() for n in range(100)), sharding_keys="one")
    said["iterator"] = len(set(text.queue_ids))
    try:
        producer.send_many("t", [b"x"], keys=["a", "b"])
    except ValueError as error:
        said["lengths"] = str(error)
    try:
        producer.send_many("t", [b"x"], keys={"a"})
    except ImportError as error:
        said["columns"] = str(error)
    said["none"] = len(producer.send_many("t", []).queue_offsets)
"""

NAMED = """
def send():
    options = ProducerOptions(producer_id="p", epoch=1)
    with Producer(endpoint, options) as producer:
        sent = [producer.send(Message("named", b"%d" % n, queue_id=0)) for n in range(3)]
        producer.flush()
        return [each.result().duplicate for each in sent]
from tandemlog import ProducerOptions
said["duplicates"] = [send(), send()]
"""

READ = """
def rows(**options):
    with Consumer(endpoint) as consumer:
        with consumer.follow("t", until_end=True, start="earliest", **options) as stream:
            return [
                [each.body.decode(), each.tags, each.keys, each.queue_offset] for each in stream
            ]
said["all"] = rows()
said["tagged"] = rows(tags="body || object")
with Consumer(endpoint, group="g") as consumer:
    with consumer.follow("t", until_end=True) as stream:
        said["batches"] = sum(len(batch) for batch in stream.batches())
        stream.commit()
        said["lag"] = sum(each.messages for each in stream.lag().values())
        said["counted"] = stream.statistics().messages
    batch = consumer.pull("t", 0, 0)
    said["batch"] = [len(batch), len(batch.sizes), batch[3].body.decode()]
    for name, ask in (("headers", lambda: batch.headers), ("arrow", batch.to_arrow)):
        try:
            ask()
        except (ImportError, ValueError) as error:
            said[name] = str(error)
with Admin(endpoint) as admin:
    said["key"] = [each.body.decode() for each in admin.query_by_key("t", "s5")]
    said["topics"] = sorted(topic.name for topic in admin.topics())
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"t": 2, "named": 1}) as running:
        yield running


def without_numpy(cluster: Cluster, program: str) -> dict[str, Any]:
    code = f"{WITHOUT}{program}\nassert 'numpy' not in sys.modules\nprint(json.dumps(said))"
    command = [sys.executable, "-c", code, cluster.endpoint]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_sends_and_receives(cluster: Cluster) -> None:
    said = without_numpy(cluster, SEND)
    assert said["single"] == list(range(200))
    queues, offsets, count = said["objects"]
    assert (queues, count) == ([0, 1] * 100, 200)
    assert offsets == [200 + n // 2 if n % 2 == 0 else n // 2 for n in range(200)]
    assert said["bodies"] == list(range(100, 200))
    assert said["iterator"] == 1
    assert said["none"] == 0
    assert "column keys has 2 rows, body has 1" in said["lengths"]
    assert "pip install 'tandemlog[columns]'" in said["columns"]

    said = without_numpy(cluster, READ)
    bodies = [row[0] for row in said["all"]]
    letters = {"s": 200, "m": 200, "b": 100, "i": 100}
    expected = [f"{letter}{n}" for letter, many in letters.items() for n in range(many)]
    assert sorted(bodies) == sorted(expected)
    by_body = {row[0]: row[1:] for row in said["all"]}
    assert by_body["s7"] == ["single", ["k", "s7"], 7]
    assert by_body["b3"] == ["body", ["b3", "c"], 103]
    assert {row[1] for row in said["tagged"]} == {"body", "object"}
    assert len(said["tagged"]) == 300
    assert (said["batches"], said["counted"], said["lag"]) == (600, 600, 0)
    assert said["batch"][1] == said["batch"][0]
    assert said["batch"][2] == "s3"
    assert "tandemlog[columns]" in said["headers"]
    assert "tandemlog[arrow]" in said["arrow"]
    assert said["key"] == ["s5"]
    assert "t" in said["topics"]


def test_a_repeated_run_is_known_again(cluster: Cluster) -> None:
    """Its checksum is that of the content, which is computed without columns here."""
    assert without_numpy(cluster, NAMED)["duplicates"] == [[False] * 3, [True] * 3]
