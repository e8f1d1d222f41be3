"""Every Python example of docs/testing.md is a file of tests that passes, with the plugin alone.

pytest runs in a process of its own: without other plugins, and without loading the plugin twice.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tandemlog.testing.pytest_plugin import topic_name

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)

UNUSED = """
import sys

def test_nothing_is_loaded():
    assert "tandemlog.testing.pytest_plugin" in sys.modules
    loaded = [name for name in sys.modules if name.split(".")[0] in ("grpc", "node", "numpy")]
    assert loaded == []
"""
TOPICS = """
import pytest
from tandemlog import Admin

SEEN = []

@pytest.mark.parametrize("text", ["a b", "ü/ü"])
@pytest.mark.tandemlog_queues(2)
def test_topics(tandemlog_cluster, tandemlog_topic, text):
    SEEN.append(tandemlog_topic)
    with Admin(tandemlog_cluster.endpoint) as admin:
        assert admin.topic(tandemlog_topic).read_queues == 2
        assert len(SEEN) == len(set(SEEN))

def test_topics_are_gone(tandemlog_cluster, tandemlog_topic):
    with Admin(tandemlog_cluster.endpoint) as admin:
        assert [topic.name for topic in admin.topics()] == [tandemlog_topic]
    tandemlog_cluster.delete_topic(tandemlog_topic)
"""


def run(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -W error\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tandemlog.testing.pytest_plugin", "."],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_run(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 7
    files = {f"test_example_{number}.py": text for number, text in enumerate(EXAMPLES)}
    tests = sum(text.count("def test_") for text in EXAMPLES)
    said = run(tmp_path, {**files, "test_topics.py": TOPICS})
    assert f"{tests + 3} passed" in said


def test_a_run_without_the_fixtures_loads_nothing(tmp_path: Path) -> None:
    assert "1 passed" in run(tmp_path, {"test_unused.py": UNUSED})


def test_the_names_of_topics() -> None:
    assert topic_name("test_orders[a b/ü]") == "test_orders-a-b"
    assert topic_name("ü") == "topic"
    assert len(topic_name("x" * 500)) == 80
