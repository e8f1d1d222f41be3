"""Nodes of different versions: what they say of themselves, and when they cannot work together."""

from dataclasses import replace

import pytest

from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.ha.errors import HandshakeRefusedError
from tandemlog_server.ha.protocol.frames import Answer, Hello, HelloAction, Refusal
from tandemlog_server.ha.protocol.handshake import MasterView, SlaveView, check_answer, decide
from tandemlog_server.ha.protocol.versions import (
    BASELINE,
    FEATURES,
    OURS,
    SILENT_PEER,
    VERSION,
    Build,
    misfit,
)

NEWER = Build("9.9.0", OURS.features | {"sealed-chunks"}, OURS.needs | {"sealed-chunks"})
VIEW = MasterView("c", "m", "mi", "m:1", 1, EpochTable((EpochEntry(1, 0),)), 0, 100, 100, 4096, 64)
HELLO = Hello("c", "s", "si")
ANSWER = Answer(HelloAction.CONTINUE, 0, master_id="m", epoch=1, file_size=4096, max_offset=9)
SLAVE = SlaveView(0, 0, 0, 0, 0)


def test_every_feature_has_the_version_that_brought_it() -> None:
    def number(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split("."))

    assert all(number(since) <= number(VERSION) for since in FEATURES.values())
    assert {name for name, since in FEATURES.items() if since == "0.1.0"} == BASELINE


def test_what_we_need_the_version_before_ours_can_do() -> None:
    # else a rolling upgrade from it would stop at the first node
    assert OURS.needs <= SILENT_PEER.features


@pytest.mark.parametrize(
    ("theirs", "mine"), [(SILENT_PEER, OURS), (OURS, OURS), (replace(NEWER, needs=BASELINE), OURS)]
)
def test_versions_that_fit(theirs: Build, mine: Build) -> None:
    assert misfit("a", theirs, "b", mine) == ""
    assert misfit("b", mine, "a", theirs) == ""


@pytest.mark.parametrize("old", [OURS, SILENT_PEER])
def test_what_the_older_one_lacks_is_named_from_both_sides(old: Build) -> None:
    for said in (misfit("n1", old, "n0", NEWER), misfit("n0", NEWER, "n1", old)):
        assert said.startswith(f"n1 runs version {old.named} and cannot do what n0 (version 9.9.0)")
        assert "sealed-chunks. Upgrade n1, or go back with n0" in said


def test_a_master_refuses_a_slave_that_cannot_follow_it() -> None:
    old = decide(replace(HELLO, build=SILENT_PEER), replace(VIEW, build=NEWER)).frame
    new = decide(replace(HELLO, build=NEWER), VIEW).frame
    assert isinstance(old, Refusal)
    assert isinstance(new, Refusal)
    assert "slave s runs version 0.1 or older" in old.reason
    assert f"master m runs version {VERSION}" in new.reason
    assert not old.retry


def test_a_slave_refuses_a_master_that_it_cannot_follow() -> None:
    check_answer(ANSWER, SLAVE)
    with pytest.raises(HandshakeRefusedError, match="sealed-chunks") as refused:
        check_answer(replace(ANSWER, build=NEWER), SLAVE)
    assert not refused.value.retry


def test_the_answer_says_the_masters_version() -> None:
    answer = decide(HELLO, VIEW).frame
    assert isinstance(answer, Answer)
    assert answer.build == OURS
