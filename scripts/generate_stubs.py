"""Generate tandemlog/v1 from proto/tandemlog/v1; the output is committed and a test compares it.

usage: python scripts/generate_stubs.py [OUTPUT_FOLDER]
"""

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent


def generate(output: Path) -> None:
    """Write the message, service and typing stubs of every .proto file below `output`.

    Raises RuntimeError where protoc refuses a file; its own words are on stderr.
    """
    include = resources.files("grpc_tools") / "_proto"
    protos = sorted((ROOT / "proto").rglob("*.proto"))
    output.mkdir(parents=True, exist_ok=True)
    arguments = [
        "protoc",
        f"-I{ROOT / 'proto'}",
        f"-I{include}",
        f"--python_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_out=quiet:{output}",
        f"--mypy_grpc_out=quiet:{output}",
        *(str(p) for p in protos),
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError(f"protoc refused one of {[p.name for p in protos]}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
