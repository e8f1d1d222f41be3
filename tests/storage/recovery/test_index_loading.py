"""An index that is on the disk at an open: continued, cut, or made from the log."""

import pytest

from fakes.indexes import ROOT, Index, fill


@pytest.fixture
def index() -> Index:
    return Index()


def test_a_clean_stop_is_gone_on_with(index: Index) -> None:
    fill(index, 9)
    index.dispatch()
    index.service.flush()
    index.service.close()
    assert index.files.open_handles == 0
    findings = index.load(clean=True)
    assert not findings.notes
    assert not findings.compare
    fill(index, 9)
    index.dispatch()
    index.check()


def test_a_missing_index_is_made_again(index: Index) -> None:
    fill(index, 9)
    index.dispatch()
    index.service.flush()
    for name in index.names():
        index.files.unlink(ROOT / "index" / name)
    findings = index.load(clean=True)
    assert "missing" in findings.notes[0]
    assert index.service.next_offset == 0
    index.dispatch()
    index.check()


def test_a_missing_newest_file_is_made_again(index: Index) -> None:
    fill(index, 13)
    index.dispatch()
    index.service.flush()
    index.files.unlink(ROOT / "index" / index.names()[-1])
    assert "missing" in index.load(clean=True).notes[0]
    index.dispatch()
    index.check()


@pytest.mark.parametrize("field", [0, 1, 2, 3, 4, 5])
def test_a_damaged_header_is_set_right(index: Index, field: int) -> None:
    fill(index, 5)
    index.dispatch()
    index.service.flush()
    content = index.files.content(ROOT / "index" / index.names()[0])
    at = 8 * min(field, 4) + 4 * max(field - 4, 0)
    if field in (1, 3, 5):
        content[at + 2] ^= 0x40
        assert index.load(clean=True).notes
    else:
        index.load(clean=True)
    fill(index, 3)
    index.dispatch()
    index.check()


def test_a_damaged_state_is_left_out(index: Index) -> None:
    fill(index, 5)
    index.dispatch()
    index.service.flush()
    index.files.content(ROOT / "tandemlog" / "index.json")[5] ^= 1
    findings = index.load(clean=False)
    assert "damaged" in findings.notes[0]
    assert findings.compare


def test_a_file_that_a_power_cut_left_empty_is_made_again(index: Index) -> None:
    fill(index, 2)
    index.dispatch()
    index.files.crash(None)
    findings = index.load(clean=False)
    assert "empty" in findings.notes[0]
    assert not findings.compare
    assert index.names() == []
    index.dispatch()
    index.check()
