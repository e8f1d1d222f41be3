"""Manifests and states: they come back as they were, and only whole."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.archive.manifest import (
    Manifest,
    SegmentEntry,
    StateEntry,
    decode_manifest,
    encode_manifest,
    merged_history,
)
from tandemlog.format.archive.object_name import (
    ManifestName,
    SegmentName,
    StateName,
    digest_of,
)
from tandemlog.format.archive.packed_json import pack_json, unpack_json
from tandemlog.format.archive.state import ArchiveState, decode_state, encode_state
from tandemlog.format.errors import FormatError
from tandemlog.format.files.log_history import LogHistory, LogTerm

DIGEST = digest_of(b"")
HISTORY = LogHistory(7, (LogTerm(1, 0, 11), LogTerm(4, 700, 14)))


def entry(start: int, end: int, name_end: int = 0, **rest: int) -> SegmentEntry:
    return SegmentEntry(SegmentName(start, name_end or end, 11, DIGEST), end, **rest)


def state(log_offset: int, at_ms: int = 0, has_prologue: bool = False) -> StateEntry:
    return StateEntry(StateName(log_offset, DIGEST), at_ms, has_prologue)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Segments with and without gaps, in files of 1,000 bytes."""
    segments = []
    at = draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(0, 12))):
        at += draw(st.sampled_from([0, 0, 0, 250]))
        end = draw(st.integers(at + 1, at - at % 1_000 + 1_000))
        beyond = draw(st.integers(0, 50))
        segments.append(entry(at, end, end + beyond, records=draw(st.integers(0, 99))))
        at = end
    starts = sorted(draw(st.sets(st.integers(0, at + 1_000), max_size=4)))
    terms = tuple(LogTerm(number + 1, start, 5) for number, start in enumerate(starts))
    states = draw(st.lists(st.builds(state, st.integers(0, at), st.integers(0, 9)), max_size=4))
    end = segments[-1].end if segments else at
    return Manifest(1_000, LogHistory(9, terms), tuple(segments), tuple(states), end, 3, 17, "a")


@given(manifests())
def test_a_manifest_comes_back(manifest: Manifest) -> None:
    name, content = encode_manifest(manifest)
    assert decode_manifest(name, content) == manifest
    assert (name.epoch, name.end, name.revision) == (manifest.epoch, manifest.end, 3)
    assert encode_manifest(manifest) == (name, content)


@given(manifests(), st.integers(0, 1 << 41), st.integers(0, 3_000))
def test_what_covers_a_range_is_found(manifest: Manifest, start: int, size: int) -> None:
    for begin in {start, manifest.end - size // 2, manifest.begin}:
        expected = tuple(
            each for each in manifest.segments if each.start < begin + size and each.end > begin
        )
        assert manifest.covering(begin, begin + size) == (expected if size else ())


@given(manifests(), st.integers(0, 1 << 41))
def test_a_cut_leaves_what_is_below_it(manifest: Manifest, anywhere: int) -> None:
    for end in {anywhere, manifest.begin, (manifest.begin + manifest.end) // 2}:
        cut = manifest.cut_at(end)
        assert cut.end <= end
        assert sum(b - a for a, b in cut.spans()) == sum(
            max(0, min(b, end) - a) for a, b in manifest.spans() if a < end
        )
        assert all(each.start_offset < end for each in cut.history.terms)
        assert decode_manifest(*encode_manifest(cut)) == cut


@given(manifests(), st.data())
def test_a_flipped_bit_is_noticed(manifest: Manifest, data: st.DataObject) -> None:
    name, content = encode_manifest(manifest)
    damaged = bytearray(content)
    damaged[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(FormatError, match="other content"):
        decode_manifest(name, bytes(damaged))


def named(value: object, epoch: int = 0, end: int = 0) -> tuple[ManifestName, bytes]:
    content = pack_json(value)
    return ManifestName(epoch, end, 0, digest_of(content)), content


@pytest.mark.parametrize("value", [None, [], {}, {"format": "tandemlog archive 1"}, "text", 7])
def test_other_json_is_no_manifest(value: object) -> None:
    with pytest.raises(FormatError, match="no manifest"):
        decode_manifest(*named(value))


def test_a_later_format_is_named() -> None:
    with pytest.raises(FormatError, match="tandemlog archive 2"):
        decode_manifest(*named({"format": "tandemlog archive 2"}))


def test_a_name_that_says_other_numbers_is_refused() -> None:
    name, content = encode_manifest(Manifest(1_000, HISTORY, (entry(0, 700),), (), 700))
    with pytest.raises(FormatError, match=r"\(4, 700, 0\)"):
        decode_manifest(ManifestName(5, 700, 0, name.digest), content)


@pytest.mark.parametrize(
    ("segments", "end", "message"),
    [
        ((entry(0, 500), entry(400, 600)), 600, "begins below 500"),
        ((entry(0, 500),), 600, "up to 600"),
        ((entry(900, 1_100),), 1_100, "two files"),
    ],
)
def test_segments_do_not_overlap(
    segments: tuple[SegmentEntry, ...], end: int, message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        Manifest(1_000, LogHistory(), segments, (), end)


def test_the_epoch_is_that_of_the_log_and_not_of_its_archived_part() -> None:
    name, _ = encode_manifest(Manifest(1_000, HISTORY, (entry(0, 600),), (), 600))
    assert (name.epoch, name.end) == (4, 600)


def test_gaps_are_shown() -> None:
    segments = entry(0, 500), entry(500, 700), entry(900, 950)
    manifest = Manifest(1_000, LogHistory(), segments, (), 950)
    assert manifest.spans() == ((0, 700), (900, 950))
    assert (manifest.begin, manifest.end, manifest.size) == (900, 950, 750)


def test_the_tables_of_a_log_are_the_newest_at_or_below_its_end() -> None:
    states = (state(0, 1, True), state(400, 2), state(400, 3), state(600, 4, True))
    manifest = Manifest(1_000, LogHistory(), (entry(0, 700),), states, 700)
    assert manifest.state_at(599) == states[2]
    assert manifest.state_at(600) == states[3]
    assert manifest.state_at(0) == states[0]
    assert manifest.prologue_at(600) == states[3]
    assert manifest.prologue_at(400) is None
    both = Manifest(1_000, LogHistory(), (entry(0, 700),), (states[3], state(600, 4)), 700)
    assert both.state_at(600) == state(600, 4)
    assert both.prologue_at(600) == states[3]


def test_a_history_keeps_the_terms_that_a_log_forgot() -> None:
    now = LogHistory(7, (LogTerm(4, 700), LogTerm(6, 900, 16)))
    merged = merged_history(HISTORY, now, 950)
    assert merged.terms == (*HISTORY.terms, LogTerm(6, 900, 16))
    assert merged_history(HISTORY, LogHistory(), 950) == HISTORY
    assert merged_history(LogHistory(), now, 0) == now


def test_a_term_above_the_archived_end_that_was_cut_is_forgotten() -> None:
    """The first term that the log still knows begins where, or below where, it did."""
    for start in (700, 650):
        now = LogHistory(7, (LogTerm(6, start, 16),))
        merged = merged_history(HISTORY, now, end=650)
        assert merged.terms == (HISTORY.terms[0], LogTerm(6, start, 16))
        with pytest.raises(FormatError, match="epoch 6"):
            merged_history(HISTORY, now, end=701)


@given(
    st.builds(
        ArchiveState,
        st.integers(0, 1 << 62),
        st.dictionaries(st.sampled_from(["topics", "groups"]), st.text(max_size=20)),
        st.none() | st.binary(max_size=40),
        st.integers(0, 1 << 50),
    )
)
def test_a_state_comes_back(tables: ArchiveState) -> None:
    name, content = encode_state(tables)
    assert decode_state(name, content) == tables
    with pytest.raises(FormatError, match="other content"):
        decode_state(name, content + b"\0")


def test_only_whole_json_is_taken() -> None:
    content = pack_json({"a": "ü"})
    assert unpack_json(content) == {"a": "ü"}
    assert gzip.decompress(content) == '{"a":"ü"}'.encode()
    for wrong in (b"", content[:-1], content + b"x", b"no gzip", content + content):
        with pytest.raises(FormatError):
            unpack_json(wrong)
    with pytest.raises(FormatError, match="no JSON"):
        unpack_json(gzip.compress(b"{"))


def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(FormatError, match="more than 1000 bytes"):
        unpack_json(gzip.compress(b" " * 10_000_000), 1_000)
