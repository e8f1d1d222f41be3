"""RocketMQ's program mqadmin (5.5.0), which one process runs for many commands.

with Mqadmin("127.0.0.1:9876", tmp_path) as mqadmin:
    assert "success" in mqadmin("updateTopic", "-c", "interop", "-t", "Orders")
"""

import json
from pathlib import Path
from typing import Self

from interop.jars import java
from interop.store_client import Talker


class Mqadmin(Talker):
    """See the module; `name_server` as HOST:PORT."""

    def __init__(self, name_server: str, home: Path) -> None:
        super().__init__(java("Administer", home=home, memory="256m", version="5.5.0"), home)
        self._name_server = name_server

    def __call__(self, *words: str) -> str:
        """What the command prints; one that failed prints where in Java it did."""
        arguments = [*words, "-n", self._name_server]
        return str(self._try(json.dumps(arguments))["said"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
