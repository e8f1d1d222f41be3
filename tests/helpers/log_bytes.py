"""The bytes of a log, from the files of its store."""

from pathlib import Path

from tandemlog.logs.reading.log_source import open_log


def log_bytes(store: Path, start: int, end: int) -> bytes:
    """Of the files of a store that may be in use. Raises EOFError for a log that ends before."""
    content = bytearray(end - start)
    view, at = memoryview(content), 0
    log = open_log(str(store)).connect()
    try:
        while at < len(content):
            taken = log.read_into(start + at, view[at:])
            if taken <= 0:
                raise EOFError(f"the log in {store} ends at {start + at}, before {end}")
            at += taken
    finally:
        log.close()
    return bytes(content)
