"""Generate the stubs in tandemlog/ from proto/; what is committed is compared by a test.

usage: python scripts/generate_stubs.py [OUTPUT_FOLDER]
"""

import re
import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent

# Both generators make a module refuse every runtime that is older than themselves, so a program
# that holds protobuf or grpcio back for another library could not install ours. The code below
# the checks runs on the oldest versions that pyproject.toml names: tests/packaging shows it with
# a cluster on exactly those.
PROTOBUF_CHECK = re.compile(
    r"^from google\.protobuf import runtime_version as _runtime_version\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\(\n.*?^\)\n",
    re.MULTILINE | re.DOTALL,
)
GRPC_CHECK = re.compile(
    r"^import warnings\n"
    r"|^GRPC_GENERATED_VERSION = .*?^if _version_not_supported:\n    raise RuntimeError\(\n"
    r".*?^    \)\n",
    re.MULTILINE | re.DOTALL,
)
GRPC_TYPES = re.compile(r"^GRPC_(?:GENERATED_)?VERSION: str\n", re.MULTILINE)


def generate(output: Path) -> None:
    """Write the message, service and typing stubs of every .proto file below `output`.

    Raises RuntimeError if protoc refuses a file (its own words are on stderr), or if what it
    wrote has no version check as it is known here.
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
    for proto in protos:
        stem = output / proto.relative_to(ROOT / "proto").with_suffix("")
        remove(PROTOBUF_CHECK, stem.with_name(f"{stem.name}_pb2.py"))
        remove(GRPC_CHECK, stem.with_name(f"{stem.name}_pb2_grpc.py"))
        remove(GRPC_TYPES, stem.with_name(f"{stem.name}_pb2_grpc.pyi"))


def remove(check: re.Pattern[str], path: Path) -> None:
    """Take both parts of a version check out of a generated module."""
    text, count = check.subn("", path.read_text())
    if count != 2:
        raise RuntimeError(f"{path}: found {count} of the 2 parts of the version check")
    path.write_text(text)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
