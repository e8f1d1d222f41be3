"""What an archive no longer needs."""

from tandemlog.format.archive.manifest import Manifest, StateEntry
from tandemlog.format.archive.object_name import (
    ManifestName,
    SegmentName,
    StateName,
    digest_of,
)
from tandemlog.format.files.log_history import LogHistory, LogTerm
from tandemlog_server.storage.archiving.pruning import (
    DAY_MS,
    FINE_MS,
    MINUTE_MS,
    dead_ends,
    is_named_by_the_dead,
    superseded,
    thinned,
)

DIGEST = digest_of(b"")
NEWEST = Manifest(
    1_000, LogHistory(7, (LogTerm(1, 0, 1), LogTerm(4, 700, 4), LogTerm(6, 1_300, 6))), end=1_400
)


def name(epoch: int, end: int, revision: int = 0) -> ManifestName:
    return ManifestName(epoch, end, revision, DIGEST)


def test_the_last_manifest_of_a_dead_branch_is_kept() -> None:
    names = [name(6, 1_400, 1), name(6, 1_400), name(4, 1_900), name(4, 1_800), name(4, 1_300)]
    assert dead_ends(NEWEST, names) == {name(4, 1_900): 1_300}
    assert superseded(names[0], NEWEST, names) == {
        each.key for each in (name(6, 1_400), name(4, 1_800), name(4, 1_300))
    }


def test_a_term_that_the_log_does_not_have_is_a_dead_branch() -> None:
    assert dead_ends(NEWEST, [name(5, 900), name(3, 650)]) == {
        name(5, 900): 1_300,
        name(3, 650): 700,
    }


def test_a_later_manifest_is_never_superseded() -> None:
    assert superseded(name(6, 1_400), NEWEST, [name(7, 100), name(6, 1_500)]) == set()


def test_objects_below_the_fork_may_be_named_by_the_dead() -> None:
    for begin, expected in [(0, True), (1_300, True), (1_301, False)]:
        segment = SegmentName(begin, begin + 10, 1, DIGEST)
        assert is_named_by_the_dead(segment.log_key, [1_300]) is expected
        assert is_named_by_the_dead(segment.index_key, [1_300]) is expected
        assert is_named_by_the_dead(StateName(begin, DIGEST).key, [1_300]) is expected
    assert not is_named_by_the_dead(name(1, 1).key, [1_300])
    assert not is_named_by_the_dead(StateName(0, DIGEST).key, [])


def test_states_get_fewer_with_age() -> None:
    def at(at_ms: int, has_prologue: bool = False) -> StateEntry:
        return StateEntry(StateName(at_ms // 10, DIGEST), at_ms, has_prologue)

    every_minute = [at(MINUTE_MS * number) for number in range(3 * 24 * 60)]
    kept = thinned(every_minute)
    ages = [every_minute[-1].at_ms - each.at_ms for each in kept]
    assert sum(age < FINE_MS for age in ages) == 10
    assert 140 <= sum(FINE_MS <= age < DAY_MS for age in ages) <= 144
    assert 47 <= sum(age >= DAY_MS for age in ages) <= 49
    assert thinned(kept) == kept
    begins = [at(MINUTE_MS * number, True) for number in range(100)]
    assert thinned(begins) == tuple(begins)
    assert thinned([]) == ()
