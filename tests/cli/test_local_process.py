"""What a process of a local cluster is started with."""

import os
from pathlib import Path

from tandemlog_server import node
from tandemlog_server.cli.local.local_coordinator import with_package_path


def test_the_package_of_this_program_comes_first() -> None:
    first = with_package_path()["PYTHONPATH"].split(os.pathsep)[0]
    file = Path(first) / "tandemlog_server" / "node" / "__init__.py"
    assert file == Path(str(node.__file__))
