"""What an archive no longer needs: pure rules on names.

Of manifests it keeps the newest, and the last one of each dead branch: what was confirmed and then
cut can be restored until an operator prunes it.

    epoch 4  ├────────────┼──────▶ 1900      kept: has bytes from 1300 on that are cut
    epoch 5  ├────────────┤1300 ─▶ 1400      superseded by the next of its epoch

Of states it keeps those with a prologue, which a log that begins there needs, and of the others
each of the last minutes, then one of every ten minutes, after a day one of every hour.
"""

from collections.abc import Iterable
from typing import Final

from tandemlog.format.archive.manifest import Manifest, StateEntry
from tandemlog.format.archive.object_name import ManifestName, segment_of, state_of

MINUTE_MS: Final = 60_000
FINE_MS: Final = 10 * MINUTE_MS
DAY_MS: Final = 24 * 60 * MINUTE_MS
COARSE_MS: Final = 60 * MINUTE_MS


def dead_ends(newest: Manifest, names: Iterable[ManifestName]) -> dict[ManifestName, int]:
    """The last manifest of each dead branch, and the log offset at which it has left the log of the
    newest one, or a higher one: of a term that this log does not have, it is where a later term
    begins."""
    terms = newest.history.terms
    known = {term.epoch for term in terms}
    last: dict[int, tuple[ManifestName, int]] = {}
    for name in names:
        if name.epoch >= newest.epoch:
            continue
        fork = min(term.start_offset for term in terms if term.epoch > name.epoch)
        is_dead = name.end > fork or name.epoch not in known
        if is_dead and (name.epoch not in last or last[name.epoch][0] < name):
            last[name.epoch] = name, fork
    return dict(last.values())


def superseded(newest: ManifestName, manifest: Manifest, names: Iterable[ManifestName]) -> set[str]:
    """Keys of the manifests that say nothing more than the newest and the kept ones."""
    names = list(names)
    kept = dead_ends(manifest, names)
    return {name.key for name in names if name < newest and name not in kept}


def is_named_by_the_dead(key: str, forks: Iterable[int]) -> bool:
    """Whether a kept manifest of a dead branch, which leaves the log at one of `forks`, may name
    this object."""
    segment, state = segment_of(key), state_of(key)
    if segment is not None:
        begin = segment.start
    elif state is not None:
        begin = state.log_offset
    else:
        return False
    return any(begin <= fork for fork in forks)


def thinned(states: Iterable[StateEntry]) -> tuple[StateEntry, ...]:
    """The states to keep, in their order."""
    states = tuple(states)
    now_ms = max((each.at_ms for each in states), default=0)
    newest: dict[object, StateEntry] = {}
    for each in states:
        newest[_slot(each, now_ms)] = each
    return tuple(each for each in states if newest[_slot(each, now_ms)] is each)


def _slot(state: StateEntry, now_ms: int) -> object:
    age_ms = now_ms - state.at_ms
    if state.has_prologue or age_ms < FINE_MS:
        return state
    step_ms = FINE_MS if age_ms < DAY_MS else COARSE_MS
    return step_ms, state.at_ms // step_ms
