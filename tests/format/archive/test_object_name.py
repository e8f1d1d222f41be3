"""Names of an archive's objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.archive.object_name import (
    LARGEST_OFFSET,
    ManifestName,
    SegmentName,
    StateName,
    digest_of,
    manifest_of,
    segment_of,
    state_of,
)
from tandemlog.format.errors import FormatError

OFFSETS = st.integers(0, LARGEST_OFFSET)
DIGESTS = st.binary(max_size=8).map(digest_of)


@st.composite
def segment_names(draw: st.DrawFn) -> SegmentName:
    start = draw(st.integers(0, LARGEST_OFFSET - 1))
    end = draw(st.integers(start + 1, LARGEST_OFFSET))
    return SegmentName(start, end, draw(st.integers(0, (1 << 64) - 1)), draw(DIGESTS))


@given(segment_names())
def test_a_segment_s_name_comes_back(name: SegmentName) -> None:
    assert segment_of(name.log_key) == segment_of(name.index_key) == name
    assert state_of(name.log_key) is None
    assert manifest_of(name.log_key) is None


@given(st.builds(StateName, OFFSETS, DIGESTS))
def test_a_state_s_name_comes_back(name: StateName) -> None:
    assert state_of(name.key) == name
    assert segment_of(name.key) is None
    assert manifest_of(name.key) is None


@given(st.builds(ManifestName, OFFSETS, OFFSETS, OFFSETS, DIGESTS))
def test_a_manifest_s_name_comes_back(name: ManifestName) -> None:
    assert manifest_of(name.key) == name
    assert segment_of(name.key) is None
    assert state_of(name.key) is None


@given(st.lists(st.builds(ManifestName, OFFSETS, OFFSETS, OFFSETS, DIGESTS), max_size=5))
def test_names_sort_as_what_they_name(names: list[ManifestName]) -> None:
    assert [manifest_of(key) for key in sorted(each.key for each in names)] == sorted(names)


@given(st.text(max_size=80) | st.from_regex(r"(log|state|manifests)/[0-9a-f-]{0,130}"))
def test_other_keys_are_no_names(key: str) -> None:
    for name in (segment_of(key), state_of(key), manifest_of(key)):
        assert name is None or key in (
            getattr(name, "key", None),
            getattr(name, "log_key", None),
            getattr(name, "index_key", None),
        )


@pytest.mark.parametrize(
    "numbers", [(5, 5, 0), (6, 5, 0), (-1, 5, 0), (0, 1 << 63, 0), (0, 1, 1 << 64), (0, 1, -1)]
)
def test_no_segment_has_such_numbers(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(FormatError, match="no segment"):
        SegmentName(*numbers, digest_of(b""))


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "G" * 64, "0" * 63 + "\n"])
def test_a_digest_is_hexadecimal(digest: str) -> None:
    with pytest.raises(FormatError, match="SHA-256"):
        StateName(0, digest)
