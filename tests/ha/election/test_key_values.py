"""What stands in the keys, and the snapshot that is made of it."""

from dataclasses import replace

import pytest

from fakes.election import KEYS, SyncCoordinator, record, up
from tandemlog_server.ha.coordinator.values import Change, Changes, KeyValue, Listing
from tandemlog_server.ha.election.key_values import (
    FORCED,
    REINIT,
    ConfirmedValue,
    LeaderValue,
    MemberValue,
    RequestValue,
    RosterValue,
    SettingsValue,
    TermValue,
    decode,
    decode_record,
    encode,
)
from tandemlog_server.ha.election.snapshot import SnapshotBuilder
from tandemlog_server.ha.frame_limits import MAX_EPOCH

RECORD = replace(
    record("a", "b", epoch=7), version=3, unclean_epoch=2, known=frozenset("abc"), reason="test"
)


@pytest.mark.parametrize(
    "value",
    [
        LeaderValue("a", "s", 3, "a:1", "a:2"),
        replace(up("a"), obstacle="its disk failed", priority=-1, accepted_epoch=4),
        RosterValue(3, removed=True),
        ConfirmedValue(1 << 40, 3, 4),
        SettingsValue(paused=True),
        RequestValue(FORCED, "b", "1", "no"),
        TermValue(4, "a", "test", 12, unclean=True, end_offset=5),
        TermValue(4, "a", "test", 12, unclean=True, end_offset=5, lost_bytes=70),
        RequestValue(REINIT, "b", "r", force=True),
    ],
)
def test_values_come_back(value: object) -> None:
    assert decode(type(value), encode(value)) == value


def test_the_record_comes_back() -> None:
    assert decode_record(encode(RECORD)) == RECORD
    assert encode(RECORD) == encode(decode_record(encode(RECORD))), "equal bytes"


def test_fields_of_newer_versions_are_skipped() -> None:
    assert decode(SettingsValue, b'{"paused":true,"new":[1]}') == SettingsValue(paused=True)
    assert decode(SettingsValue, b"{}") == SettingsValue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        encode(RECORD).replace(b'"epoch":7', b'"epoch":"7"'),
        encode(RECORD).replace(b'"epoch":7', b'"epoch":0'),
        encode(RECORD).replace(b'"epoch":7', b'"epoch":%d' % (MAX_EPOCH + 1)),
        encode(RECORD).replace(b'"unclean_epoch":2', b'"unclean_epoch":8'),
        encode(RECORD).replace(b'[["a","1"],["b","1"]]', b"[]"),
        encode(RECORD).replace(b'[["a","1"],["b","1"]]', b'[["a"]]'),
        encode(RECORD).replace(b'[["a","1"],["b","1"]]', b'["a"]'),
        encode(RECORD).replace(b'"leader":["a","1"]', b'"leader":null'),
    ],
)
def test_a_record_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any reason
        decode_record(data)


def kv(key: bytes, value: object, revision: int, lease: int = 0) -> KeyValue:
    data = value if isinstance(value, bytes) else encode(value)
    return KeyValue(key, data, revision, revision, 1, lease)


def test_a_snapshot_of_all_keys() -> None:
    keys = SyncCoordinator()
    nodes = keys.found("a", "b")
    keys.put(KEYS.in_roster("c"), RosterValue(removed=True))
    keys.put(KEYS.settings, SettingsValue(paused=True))
    revision = keys.put(KEYS.request, RequestValue(FORCED, "b", "1"))
    snapshot = keys.snapshot()
    assert snapshot.members["b"] == nodes["b"].me, "with the lease of its key"
    assert snapshot.removed("c")
    assert not snapshot.removed("a")
    assert snapshot.settings.paused
    assert (snapshot.request_revision, snapshot.revision) == (revision, revision)
    assert 0 < snapshot.record_revision < snapshot.leader_revision < revision
    assert not snapshot.fault


@pytest.mark.parametrize("key", [KEYS.state, KEYS.leader])
def test_keys_that_must_be_readable(key: bytes) -> None:
    keys = SyncCoordinator()
    keys.found("a", "b")
    keys.put(key, b"?")
    assert "cannot be read" in keys.snapshot().fault


def test_other_keys_that_cannot_be_read_are_left_out() -> None:
    keys = SyncCoordinator()
    keys.found("a", "b")
    for key in (KEYS.member("c"), KEYS.in_roster("c"), KEYS.settings, KEYS.request, KEYS.term(1)):
        keys.put(key, b"?")
    snapshot = keys.snapshot()
    assert not snapshot.fault
    assert sorted(snapshot.members) == ["a", "b"]
    assert snapshot.request is None
    assert snapshot.request_revision, "so that an operator can replace it"


def test_what_is_older_than_the_listing_is_ignored() -> None:
    made = SnapshotBuilder(KEYS)
    made.apply(Listing(9, (kv(KEYS.state, RECORD, 9),)))
    old = replace(RECORD, epoch=6)
    for late in (
        Changes(8, (Change(kv(KEYS.state, old, 8)),)),
        Changes(8, (Change(kv(KEYS.state, b"", 8), deleted=True),)),
        Listing(8, ()),
        # one batch that began before the listing and ends after it
        Changes(10, (Change(kv(KEYS.state, old, 8)), Change(kv(KEYS.settings, b"{}", 10)))),
    ):
        assert made.apply(late).record == RECORD
    assert made.snapshot.revision == 10
    assert made.apply(Changes(11, (Change(kv(KEYS.state, b"", 11), deleted=True),))).record is None


def test_a_listing_shows_what_is_gone() -> None:
    made = SnapshotBuilder(KEYS)
    made.apply(Listing(5, (kv(KEYS.member("b"), up("b"), 5),)))
    assert made.apply(Listing(6, ())).members == {}
    made.apply(Changes(7, (Change(kv(KEYS.member("b"), MemberValue("b", "2", "s", "e"), 7)),)))
    assert made.snapshot.members["b"].incarnation == "2"
