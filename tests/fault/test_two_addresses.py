"""A name with two addresses, of which one is dead: with /etc/hosts of a mount namespace."""

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.running import ROOT, Running

pytestmark = pytest.mark.fault

ASK = """
import sys
from tandemlog import Admin, Consumer, Message, Producer
endpoint = sys.argv[1]
with Admin(endpoint) as admin:
    admin.create_topic("orders", queues=1)
with Producer(endpoint) as producer:
    producer.send(Message("orders", b"hello")).result(30)
with Consumer(endpoint) as consumer, consumer.follow("orders", until_end=True) as stream:
    print([message.body.decode() for message in stream])
"""


def test_the_address_that_is_alive_is_found(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.0.2 two.test\n127.0.0.1 two.test\n")
    with Running(tmp_path) as running:
        port = running.master.endpoint.rpartition(":")[2]
        script = 'mount --bind "$1" /etc/hosts && exec "$2" -c "$3" "$4"'
        inside = ["sh", "-c", script, "sh", str(hosts)]
        command = ["unshare", "-m", *inside, sys.executable, ASK, f"two.test:{port}"]
        found = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        )
    assert found.stdout.decode().strip() == "['hello']"
