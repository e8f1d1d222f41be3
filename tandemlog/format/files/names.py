"""Names of the store's files and folders.

Log and queue files: the byte offset of their start, 20 digits. Index files: their time of
creation in the broker's local time zone, `yyyyMMddHHmmssSSS`. Digits are ASCII, whatever the
locale.
"""

from datetime import UTC, datetime, timedelta, tzinfo

from ..errors import FormatError

QUEUE_NAME_DIGITS = 20
INDEX_NAME_DIGITS = 17
_NO_FOLDERS = frozenset(("", ".", ".."))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def names_a_folder(name: str) -> bool:
    """Whether a topic or queue of this name can have its files in a folder of that name."""
    return name not in _NO_FOLDERS and "/" not in name and "\0" not in name


def offset_file_name(offset: int) -> str:
    """The name of the log or queue file that starts at byte `offset`."""
    if not 0 <= offset < 1 << 63:
        raise FormatError(f"file offset {offset} is not between 0 and 2**63-1")
    return f"{offset:020d}"


def parse_offset_file_name(name: str) -> int | None:
    """Where the file starts, or None if `name` is not that of a log or queue file."""
    if len(name) != QUEUE_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    offset = int(name)
    return offset if offset < 1 << 63 else None


def index_file_name(created_ms: int, zone: tzinfo | None = None) -> str:
    """The name of an index file created at `created_ms`; `zone` None is the process's own."""
    seconds, milliseconds = divmod(created_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, zone):%Y%m%d%H%M%S}{milliseconds:03d}"


def parse_index_file_name(name: str, zone: tzinfo | None = None) -> int | None:
    """When the index file was created (ms), or None if `name` is not that of an index file.

    In the hour that a zone's clock repeats in autumn, the earlier of the two times.
    """
    if len(name) != INDEX_NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    try:
        created = datetime.strptime(name[:14], "%Y%m%d%H%M%S").replace(tzinfo=zone)
    except ValueError:
        return None
    return (created.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1) + int(name[14:])
