"""What a process of a local cluster is started with."""

import os
from pathlib import Path

import node
from cli.local.process import with_package_path


def test_the_package_of_this_program_comes_first() -> None:
    first = with_package_path()["PYTHONPATH"].split(os.pathsep)[0]
    assert Path(first) / "node" / "__init__.py" == Path(str(node.__file__))
    assert Path(first).is_dir()
