"""Every program of the cookbook runs, in its order, and does what the page says."""

import json
import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.running import Running
from tandemlog import Admin, Consumer, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark-cookbook.md"
TOPICS = (
    "payments", "payments-broken", "payments-unique", "payments-named", "refunds", "reminders",
)  # fmt: skip


def payment(number: int) -> bytes:
    values = {"id": f"p-{number}", "customer": f"c-{number % 3}", "amount": number / 2}
    return json.dumps(values).encode()


def stored(cluster: Running, topic: str) -> list[bytes]:
    with (
        Consumer(cluster.endpoints, read_from="master") as consumer,
        consumer.follow(topic, until_end=True) as stream,
    ):
        return [message.body for message in stream]


@pytest.fixture
def filled(cluster: Running) -> None:
    """Twenty payments, of which two are there twice, and one message that is no JSON; two refunds,
    of which one is a dead letter."""
    with Admin(cluster.endpoints) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, 2)
    with Producer(cluster.endpoints) as producer:
        bodies = [payment(number) for number in (*range(20), 3, 4)]
        producer.send_many("payments", [*bodies, b"no json"], keys=["k"] * 23)
        producer.send_many("refunds", [b""] * 2, keys=["p-5", "p-404"])
    with (
        Consumer(cluster.endpoints) as consumer,
        consumer.work("refunds", group="billing") as work,
    ):
        for delivery in islice(work.deliveries(timeout_ms=60_000), 2):
            if delivery.message.keys == ["p-404"]:
                delivery.reject("there is no such payment")
            else:
                delivery.ack(sync=True)


@pytest.mark.spark
@pytest.mark.usefixtures("filled")
def test_the_cookbook(
    spark: "SparkSession", cluster: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    *programs, end = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert end == "spark.stop()\n"  # the session is that of all tests
    for example in programs:
        code = example.replace("10.0.0.1:10911", cluster.master.endpoint)
        code = code.replace("/data/", f"{tmp_path}/")
        exec(compile(code, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert names["spark"] is spark
    assert stored(cluster, "payments-broken") == [b"no json"]
    ids = sorted(json.loads(body)["id"] for body in stored(cluster, "payments-unique"))
    assert ids == sorted(f"p-{number}" for number in range(20))
    named = [json.loads(body) for body in stored(cluster, "payments-named")]
    assert len(named) == 23
    assert {each.get("name") for each in named} == {"Ada", "Bo", None}
    assert "23 payments in Parquet" in printed
    assert [row.id for row in spark.table("refunded").collect()] == ["p-5"]
    assert "|      23|" in printed
    assert names["waits"].where("real_topic = 'reminders'").count() == 22
    assert stored(cluster, "reminders") == []
    [letter] = names["letters"].collect()
    assert (letter.origin_topic, letter.attempts) == ("refunds", 1)
    assert letter.last_error == "there is no such payment"
    assert [body for body in stored(cluster, "payments") if b'"p-99"' in body]
    windows = spark.read.parquet(str(tmp_path / "per-minute"))
    assert windows.columns == ["window", "customer", "payments", "total"]
    assert [each.messages for each in names["listener"].lags()] in ([], [0])
