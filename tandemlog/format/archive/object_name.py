"""Names of an archive's objects: each says what is in it, so that a name never has two contents.

    log/<start>-<end>-<term id>-<sha-256>       bytes of the log from `start` up to `end`
    index/<start>-<end>-<term id>-<sha-256>     what is in those bytes (segment_index.py)
    state/<log offset>-<sha-256>                tables as they were when the log ended there
    manifests/<epoch>-<end>-<revision>-<sha-256>    which of them make the log (manifest.py)

Numbers have 20 digits, a term's id 16 hexadecimal ones, so names sort by number. The SHA-256 is
that of the object's content, save for an index, which has its segment's name and a digest inside.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from ..errors import FormatError
from ..files.log_history import id_text

LOG: Final = "log/"
INDEX: Final = "index/"
STATE: Final = "state/"
MANIFESTS: Final = "manifests/"

LARGEST_OFFSET: Final = (1 << 63) - 1
_NUMBER: Final = r"(\d{20})"
_DIGEST: Final = r"([0-9a-f]{64})"
_SEGMENT: Final = re.compile(
    rf"(?:log|index)/{_NUMBER}-{_NUMBER}-([0-9a-f]{{16}})-{_DIGEST}", re.ASCII
)
_STATE: Final = re.compile(rf"state/{_NUMBER}-{_DIGEST}", re.ASCII)
_MANIFEST: Final = re.compile(rf"manifests/{_NUMBER}-{_NUMBER}-{_NUMBER}-{_DIGEST}", re.ASCII)


def digest_of(content: bytes | memoryview) -> str:
    """The SHA-256 of an object's content, as names have it."""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """`start`, `end`: log offsets; `term_id` of the term that all of its bytes are of; `digest` of
    its bytes. Raises FormatError for numbers that are no part of a log."""

    start: int
    end: int
    term_id: int
    digest: str

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= LARGEST_OFFSET or not 0 <= self.term_id < 1 << 64:
            raise FormatError(f"no segment of a log: {self.start} to {self.end}")
        _check_digest(self.digest)

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def log_key(self) -> str:
        return f"{LOG}{self._text}"

    @property
    def index_key(self) -> str:
        return f"{INDEX}{self._text}"

    @property
    def _text(self) -> str:
        return f"{self.start:020d}-{self.end:020d}-{id_text(self.term_id)}-{self.digest}"


@dataclass(frozen=True, slots=True, order=True)
class StateName:
    """`log_offset`: how far the log was confirmed before the tables were read."""

    log_offset: int
    digest: str

    def __post_init__(self) -> None:
        if not 0 <= self.log_offset <= LARGEST_OFFSET:
            raise FormatError(f"no state of a log: {self.log_offset}")
        _check_digest(self.digest)

    @property
    def key(self) -> str:
        return f"{STATE}{self.log_offset:020d}-{self.digest}"


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """Ordered as manifests are chosen: the newest epoch, of that the longest log, of that the
    highest `revision`: one more than that of the manifest which it continues."""

    epoch: int
    end: int
    revision: int
    digest: str

    def __post_init__(self) -> None:
        numbers = self.epoch, self.end, self.revision
        if min(numbers) < 0 or max(numbers) > LARGEST_OFFSET:
            raise FormatError(f"no manifest: epoch, end and revision {numbers}")
        _check_digest(self.digest)

    @property
    def key(self) -> str:
        return f"{MANIFESTS}{self.epoch:020d}-{self.end:020d}-{self.revision:020d}-{self.digest}"


def segment_of(key: str) -> SegmentName | None:
    """What an object under log/ or index/ is; None for a key that is no segment's."""
    found = _SEGMENT.fullmatch(key)
    if found is None:
        return None
    start, end, term_id, digest = found.groups()
    try:
        return SegmentName(int(start), int(end), int(term_id, 16), digest)
    except FormatError:
        return None


def state_of(key: str) -> StateName | None:
    """None for a key that is no state's."""
    found = _STATE.fullmatch(key)
    return (
        None
        if found is None or int(found[1]) > LARGEST_OFFSET
        else StateName(int(found[1]), found[2])
    )


def manifest_of(key: str) -> ManifestName | None:
    """None for a key that is no manifest's."""
    found = _MANIFEST.fullmatch(key)
    if found is None:
        return None
    epoch, end, revision = (int(text) for text in found.groups()[:3])
    if max(epoch, end, revision) > LARGEST_OFFSET:
        return None
    return ManifestName(epoch, end, revision, found[4])


def _check_digest(digest: str) -> None:
    if not re.fullmatch(_DIGEST, digest, re.ASCII):
        raise FormatError(f"{digest[:80]!r} is no SHA-256 in hexadecimal digits")
