"""Everything that was ever found, one small file each: what the fuzzer writes and a test replays.

    {"kind": "rpc", "found": what went wrong, "seed": …, "calls": [
        {"node": "master", "path": "/tandemlog.v1.Broker/Pull", "messages": [<parts>, …]}]}

A message is its parts end to end: a text of hex digits, or [hex digits, how many times], so that
megabytes that are all alike stay one line.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("FUZZ_CORPUS", Path(__file__).resolve().parent / "corpus"))


def entries(kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The entries of one kind with their names, in order."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        entry = json.loads(path.read_text())
        if entry["kind"] == kind:
            found.append((path.stem, entry))
    return found


def save(kind: str, found: str, **content: Any) -> Path:
    """Write an entry; its name says what was found, and its bytes give the rest."""
    entry = {"kind": kind, "found": found, **content}
    text = json.dumps(entry, indent=1)
    words = re.sub(r"[^a-z0-9]+", "-", found.lower()).strip("-")[:60].strip("-")
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{kind}-{words}-{digest}.json"
    path.write_text(text + "\n")
    return path


def kind_of(found: str) -> str:
    """What findings of one cause have in common: the words without the numbers."""
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", found)[:70]


def pack(data: bytes) -> list[Any]:
    """The parts of `data`: a byte or a short pattern that repeats for long is written once."""
    parts: list[Any] = []
    plain = bytearray()
    position = 0
    while position < len(data):
        for width in (1, 2, 3, 4):
            piece = data[position : position + width]
            times = 1
            while data.startswith(piece, position + times * width):
                times += 1
            if times * width >= 64:
                if plain:
                    parts.append(plain.hex())
                    plain = bytearray()
                parts.append([piece.hex(), times])
                position += times * width
                break
        else:
            plain.append(data[position])
            position += 1
    if plain or not parts:
        parts.append(plain.hex())
    return parts


def unpack(parts: Iterable[Any]) -> bytes:
    return b"".join(
        bytes.fromhex(part) if isinstance(part, str) else bytes.fromhex(part[0]) * part[1]
        for part in parts
    )
