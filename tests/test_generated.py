"""The committed stubs are those that the .proto files give."""

import filecmp
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_stubs_are_current(tmp_path: Path) -> None:
    # protoc finds its mypy plug-ins on PATH, beside the interpreter
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "generate_stubs.py"), str(tmp_path)],
        check=True,
        env={**os.environ, "PATH": path},
    )
    fresh = sorted((tmp_path / "tandemlog" / "v1").glob("*_pb2*"))
    assert len(fresh) >= 16
    stale = [
        each.name
        for each in fresh
        if not filecmp.cmp(each, ROOT / "tandemlog" / "v1" / each.name, shallow=False)
    ]
    assert not stale, f"run `make proto`: {stale} differ from what the .proto files give"
    committed = {each.name for each in (ROOT / "tandemlog" / "v1").glob("*_pb2*")}
    assert committed == {each.name for each in fresh}
