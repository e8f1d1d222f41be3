"""How far the index is durable: tandemlog's own small file `tandemlog/index.json`.

    {"version": 1, "log_offset": C, "file": name, "next_entry": n,
     "end_timestamp": ms, "end_physical_offset": o}
    crc32 of that line, 8 hexadecimal digits

Every entry for the log below C is on disk, the last of them is number n-1 of `file` ("" where
there is no file). After a crash later entries are cut and rebuilt from the log.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tandemlog.format.errors import FormatError
from tandemlog.format.fast_crc import crc32

from ..disk.file_system import FileSystem
from ..disk.small_files import read_small, write_small

VERSION = 1


@dataclass(frozen=True, slots=True)
class IndexState:
    """See the module."""

    log_offset: int
    file: str = ""
    next_entry: int = 1
    end_timestamp: int = 0
    end_physical_offset: int = 0


def encode_index_state(state: IndexState) -> bytes:
    text = json.dumps({"version": VERSION, **asdict(state)}, separators=(",", ":")).encode()
    return b"%s\n%08x\n" % (text, crc32(text))


def decode_index_state(data: bytes) -> IndexState:
    """Raises FormatError for anything that encode_index_state did not write."""
    text, _, checksum = data.partition(b"\n")
    if checksum.strip() != b"%08x" % crc32(text):
        raise FormatError("index state: its checksum is wrong")
    document = json.loads(text)
    if document.pop("version", None) != VERSION:
        raise FormatError(f"index state: its version is not {VERSION}")
    try:
        return IndexState(**document)
    except TypeError as error:
        raise FormatError(f"index state: {error}") from error


def load_index_state(files: FileSystem, path: Path) -> IndexState | None:
    """None if there is none; raises FormatError for a damaged one."""
    data = read_small(files, path)
    return None if data is None else decode_index_state(data)


def save_index_state(files: FileSystem, path: Path, state: IndexState) -> None:
    """Durably, in place of the one before."""
    write_small(files, path, encode_index_state(state))
