"""Turns the user's options into an offset for every queue.

    earliest 0   startingOffsets {"0": 4}   a time          latest 9
             |----------|-----------------------|-----------|
             min                                           max      what the queue holds

No clock and no network: what queues hold, and the offset of a time, are arguments.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tandemlog.consume.reading.span_progress import QueueSpan

from .cluster_errors import DataLossError, OffsetsError
from .live_options import Strategy
from .queue_offsets import EARLIEST, LATEST, Offsets, Position, Queue

AtTime = Callable[[Sequence[Queue], int], Offsets]
"""By queue, the first message stored at or after a time in ms, or else the end."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a queue holds: offsets first .. end-1, the last of them stored at `newest` (ms, -1 for
    an empty queue)."""

    first: int = 0
    end: int = 0
    newest: int = -1


NOTHING = Held()


def resolve_start(
    position: Position,
    held: Mapping[Queue, Held],
    at_time: AtTime,
    *,
    strategy: Strategy = Strategy.ERROR,
    fail_on_data_loss: bool = True,
) -> Offsets:
    """Where every queue of `held` starts.

    Raises OffsetsError for an offset that a queue does not have, DataLossError for one that it no
    longer has; without `fail_on_data_loss` the nearest offset is used for both.
    """
    times = _times(position, held, "startingOffsetsByTimestamp")
    if times is not None:
        return _starts_at_times(times, held, at_time, strategy)
    offsets = _offsets(position, held, "startingOffsets")
    return {
        queue: _inside(queue, offset, held[queue], fail_on_data_loss)
        for queue, offset in offsets.items()
    }


def resolve_end(
    position: Position,
    held: Mapping[Queue, Held],
    at_time: AtTime,
    *,
    fail_on_data_loss: bool = True,
) -> Offsets:
    """Where every queue of `held` ends, exclusive; see resolve_start."""
    times = _times(position, held, "endingOffsetsByTimestamp")
    if times is not None:
        offsets = _at_times(times, at_time)
    else:
        offsets = _offsets(position, held, "endingOffsets")
        for queue, offset in offsets.items():
            if offset > held[queue].end and fail_on_data_loss:
                raise OffsetsError(_text("endingOffsets", queue, offset, held[queue]))
    return {queue: min(offset, held[queue].end) for queue, offset in offsets.items()}


def spans_of(starts: Offsets, ends: Offsets, *, strict: bool) -> list[QueueSpan]:
    """The spans from start to end, by topic and queue, without empty ones. `strict`: an end before
    its start is an OffsetsError."""
    spans = []
    for queue, end in sorted(ends.items()):
        start = starts.get(queue, 0)
        if start > end and strict:
            raise OffsetsError(f"{_name(queue)}: the read ends at {end}, before it starts: {start}")
        if start < end:
            spans.append(QueueSpan(queue[0], queue[1], start, end))
    return spans


def lost_messages(spans: Iterable[QueueSpan], held: Mapping[Queue, Held]) -> list[str]:
    """A sentence for each span that begins before what its queue still holds."""
    return [
        _text("the read's start", span.queue, span.start, held.get(span.queue, NOTHING))
        for span in spans
        if span.start < held.get(span.queue, NOTHING).first
    ]


def _offsets(position: Position, held: Mapping[Queue, Held], option: str) -> Offsets:
    """The offsets wanted, with earliest and latest filled in."""
    if position.everywhere is not None:
        wanted = dict.fromkeys(held, position.everywhere)
    else:
        wanted = dict(position.offsets or {})
        _check_named(wanted, held, option)
    filled = {EARLIEST: "first", LATEST: "end"}
    return {
        queue: getattr(held[queue], filled[offset]) if offset in filled else offset
        for queue, offset in wanted.items()
    }


def _times(
    position: Position, held: Mapping[Queue, Held], option: str
) -> Mapping[Queue, int] | None:
    """The times wanted; None for a position without times."""
    if position.time is not None:
        return dict.fromkeys(held, position.time)
    if position.times is not None:
        _check_named(position.times, held, option)
    return position.times


def _check_named(named: Mapping[Queue, int], held: Mapping[Queue, Held], option: str) -> None:
    """Check that an option names exactly the queues that are read."""
    unknown = sorted(set(named) - set(held))
    if unknown:
        raise OffsetsError(
            f"option {option} names {_name(unknown[0])}, which is not among the queues that are "
            f"read: {_names(held)}"
        )
    missing = sorted(set(held) - set(named))
    if missing:
        raise OffsetsError(
            f"option {option} has no offset for {_name(missing[0])}: every queue needs an "
            f"entry ({EARLIEST} earliest, {LATEST} latest)"
        )


def _inside(queue: Queue, offset: int, held: Held, fail_on_data_loss: bool) -> int:
    if offset < held.first and fail_on_data_loss:
        raise DataLossError(
            _text("startingOffsets", queue, offset, held)
            + "; failOnDataLoss=false starts with what is left"
        )
    if offset > held.end and fail_on_data_loss:
        raise OffsetsError(_text("startingOffsets", queue, offset, held))
    return min(max(offset, held.first), held.end)


def _starts_at_times(
    times: Mapping[Queue, int], held: Mapping[Queue, Held], at_time: AtTime, strategy: Strategy
) -> Offsets:
    offsets = _at_times(times, at_time)
    for queue, time in times.items():
        if 0 <= held[queue].newest < time:
            if strategy is Strategy.ERROR:
                raise OffsetsError(
                    f"{_name(queue)}: no message at or after {time} ms, the newest was stored at "
                    f"{held[queue].newest}; startingOffsetsByTimestampStrategy=latest starts at "
                    "the end"
                )
            offsets[queue] = held[queue].end
    return offsets


def _at_times(times: Mapping[Queue, int], at_time: AtTime) -> Offsets:
    offsets: Offsets = {}
    for time in sorted(set(times.values())):
        offsets |= at_time([queue for queue in sorted(times) if times[queue] == time], time)
    return offsets


def _text(what: str, queue: Queue, offset: int, held: Held) -> str:
    return f"{what}: {_name(queue)} has no offset {offset}, it holds {held.first}..{held.end}"


def _name(queue: Queue) -> str:
    return f"{queue[0]}/{queue[1]}"


def _names(queues: Iterable[Queue]) -> str:
    names = [_name(queue) for queue in sorted(queues)]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
