"""What idempotent producers have stored: the snapshot against the log.

    log        |.. deleted ..| L   p: 5 6 7   q: 0 1   r: 3     requests by producer
    snapshot   p: .. 4 5 6 7       q: 0 1

The last request of a producer must be the same on both sides, and so must each request that both
remember, or that one must remember: one between two others. Each side forgets by itself, the oldest
requests and silent producers. So a producer that the snapshot does not know, such as r, is no
difference: it may have been forgotten for its age, or to make room for a new one.
"""

from collections.abc import Mapping

from tandemlog.format.words import counted

from ...producers.producer_requests import Key, Producer, Request, unpack
from .findings import Findings


def producer_differences(
    fresh: Mapping[str, Producer],
    snapshot: Mapping[str, Producer],
    log_start: int,
    *,
    full: bool,
) -> Findings:
    """`fresh` is made from the log from `log_start` on; `full`: it may have forgotten some of
    these too."""
    findings = Findings()
    for name, producer in snapshot.items():
        mine = fresh.get(name)
        if mine is not None:
            _compare(findings, name, mine, producer, log_start)
        elif _begin(producer) >= log_start and not full:
            findings.add(
                _begin(producer),
                f"producer {name}: its last one is {_number(producer.last)} in the snapshot, and "
                "the log has nothing of it",
            )
    forgotten = [name for name in fresh if name not in snapshot]
    if forgotten:
        last = fresh[forgotten[-1]]
        findings.notes.append(
            f"the table of producers lacks {counted(len(forgotten), 'producer')} of which the log "
            f"has requests ({forgotten[-1]}, {_number(last.last)} at log offset {_begin(last)}, "
            "…): it forgets silent ones after producer_retention_ms, and the oldest for new ones"
        )
    return findings


def _begin(producer: Producer) -> int:
    """Where the last request begins in the log; -1 if it is not known."""
    newest = producer.newest
    return newest.extents[0].physical_offset if newest is not None and newest.extents else -1


def _number(key: Key | None) -> str:
    return "no request" if key is None else f"request {key[1]} of epoch {key[0]}"


def _compare(
    findings: Findings, name: str, log: Producer, snapshot: Producer, log_start: int
) -> None:
    if log.last != snapshot.last:
        findings.add(
            max(_begin(log), 0),
            f"producer {name}: its last one is {_number(log.last)} by the log, "
            f"{_number(snapshot.last)} in the snapshot: a repeated request would be stored "
            "again, or a new one refused",
        )
        return
    mine, theirs = _requests(log), _requests(snapshot)
    if not mine or not theirs:
        return
    first = max(min(mine), min(theirs))
    for key in sorted(mine.keys() | theirs.keys()):
        request, other = mine.get(key), theirs.get(key)
        if key < first or (other is not None and _starts(other) < log_start):
            continue
        if request is None or other is None or request != other:
            there = request if request is not None else other
            assert there is not None  # the key is of one of them
            findings.add(
                _starts(there),
                f"producer {name}, {_number(key)}: {_text(request)} by the log, {_text(other)} "
                "in the snapshot",
            )


def _requests(producer: Producer) -> dict[Key, Request]:
    requests = map(unpack, producer.packed())
    return {request.key: request for request in requests if request.extents}


def _starts(request: Request) -> int:
    return request.extents[0].physical_offset


def _text(request: Request | None) -> str:
    if request is None:
        return "unknown"
    places = ", ".join(f"{each.physical_offset}..{each.end_offset}" for each in request.extents[:3])
    return f"{request.have} of {request.count} records at {places}, stored at {request.timestamp}"
