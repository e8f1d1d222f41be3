"""An offset of a stream, as Spark keeps it in the checkpoint and passes it back.

    {"orders": {"0": 17, "1": 4},           the next message of each queue
     "@log": {"log_id": ..., "terms": ...}, the log in which these are offsets (log_history.py)
     "@from": {"orders": {"1": 0}},         where the batch that ends here began in these queues
     "@cut": {"orders": {"1": 6}},          rows that were read before and are no longer in the log
     "@first": true}                        where the stream starts: no batch has ended here

A batch begins where the one before it has ended, except in a new queue, in a queue that was cut
below that offset, and in all queues if it is the first batch. Spark does not keep where a source in
Python starts, so the end of the first batch does: the batch is planned again from there, whatever
startingOffsets would mean by then.

Names that begin with @ cannot be topics. An offset of an older version does not have them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tandemlog.format.errors import FormatError
from tandemlog.format.files.log_history import LogHistory

from .cluster_errors import OffsetsError
from .queue_offsets import Offsets, Queue, from_json, to_json

_MARK: Final = "@"
_LOG: Final = "@log"
_FROM: Final = "@from"
_CUT: Final = "@cut"
_FIRST: Final = "@first"
_KNOWN: Final = frozenset({_LOG, _FROM, _CUT, _FIRST})
_MOST_TERMS: Final = 64
"""The newest ones: a log that shares none of these is another log."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """See the module. `history`: of the log; None if its nodes do not know. `begins` None: an older
    version wrote this. `cut`: rows by queue."""

    offsets: Offsets
    history: LogHistory | None = None
    begins: Mapping[Queue, int] | None = field(default_factory=dict)
    cut: Mapping[Queue, int] = field(default_factory=dict)
    first: bool = False

    def to_json(self) -> Json:
        """The same offset becomes the same text."""
        document: Json = dict(to_json(self.offsets))
        if self.history is not None:
            newest = self.history.terms[-_MOST_TERMS:]
            document[_LOG] = LogHistory(self.history.log_id, newest).to_json()
        if self.begins is not None:
            document[_FROM] = to_json(self.begins)
        if self.cut:
            document[_CUT] = to_json(self.cut)
        if self.first:
            document[_FIRST] = True
        return document

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "StreamOffset":
        """The inverse of to_json. Raises OffsetsError for an offset of a newer version, and for
        damage."""
        unknown = sorted(name for name in value if name[:1] == _MARK and name not in _KNOWN)
        if unknown:
            raise OffsetsError(
                f"the checkpoint was written by a newer version of tandemlog: its offsets have "
                f"{unknown[0]}. Continue with that version"
            )
        begins = value.get(_FROM)
        return cls(
            offsets=from_json(queues_in(value)),
            history=_history(value.get(_LOG)),
            begins=None if begins is None else from_json(begins),
            cut=from_json(value.get(_CUT, {})),
            first=bool(value.get(_FIRST)),
        )


def _history(value: object) -> LogHistory | None:
    try:
        return None if value is None else LogHistory.from_json(value)
    except FormatError as error:
        raise OffsetsError(f"the checkpoint's offsets are damaged: {error}") from error


def queues_in(value: Mapping[str, Any]) -> dict[str, Any]:
    """The topics alone, with their queues."""
    return {name: queues for name, queues in value.items() if name[:1] != _MARK}
