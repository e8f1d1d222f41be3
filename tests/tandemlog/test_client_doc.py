"""Every Python example of docs/client.md runs, in the order of the page, on one cluster."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.fake_cluster import ThreadedCluster, running_cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
README = PAGE.parent.parent / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with running_cluster(slaves=1) as cluster:
        yield cluster


def test_the_examples_run(cluster: ThreadedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(EXAMPLES) >= 8
    for example in EXAMPLES:
        assert '"127.0.0.1:10911"' in example
        code = example.replace("127.0.0.1:10911", cluster.endpoints[0])
        exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    assert "body: 104857600 bytes, at most 1048576" in printed
    assert "property 'DELAY' is reserved" in printed


def test_the_tour_of_the_readme_does_not_make_the_topics_of_the_page() -> None:
    made = r'topic create (\S+)|create_topic\("([^"]+)"'
    page, tour = (
        {"".join(names) for names in re.findall(made, path.read_text())} for path in (PAGE, README)
    )
    assert page
    assert tour
    assert not page & tour


def test_the_page_names_every_setting() -> None:
    text = PAGE.read_text()
    for name in (
        "batch_bytes",
        "linger_ms",
        "max_in_flight_bytes",
        "max_in_flight_requests",
        "delivery_timeout_ms",
        "answer_timeout_ms",
        "prefetch_bytes",
        "auto_commit_ms",
        "on_data_loss",
        "session_timeout_ms",
        "rebalance_timeout_ms",
        "max_poll_interval_ms",
    ):
        assert f"`{name}`" in text
