"""The protocol holds on every walk; with any of its rules switched off, a walk breaks the promise.

Where a rule is needed seldom, the walks begin shortly before the first seed that shows it: a search
from 0 takes up to 7,000 walks.
"""

import pytest
from model.failover_model import Rules, first_violation

pytestmark = pytest.mark.sim

WALKS = 2_000
SWITCHED_OFF = {
    "waits_for_whole_set": 0,
    "waits_until_a_shrink_is_recorded": 0,
    "waits_from_the_proposal_to_expand": 0,
    "proposal_is_open_until_a_newer_revision": 0,
    "expands_from_the_epoch_start": 0,
    "followers_refuse_lower_epochs": 0,
    "acknowledgements_name_their_epoch": 6_500,
    "elects_from_the_set": 0,
    "each_term_is_a_new_epoch": 0,
    "truncates_before_it_acknowledges": 0,
    "followers_fsync_first": 0,
    "leader_counts_what_it_fsynced": 0,
}
"""Rule, and the seed to begin with."""
SWITCHED_OFF_IN_ASYNC_FLUSH = {
    "set_names_incarnations": 0,
    "leader_is_named_with_its_incarnation": 1_400,
}
"""An incarnation only changes if a disk has lost what others counted on."""


@pytest.mark.parametrize("async_flush", [False, True], ids=["sync_flush", "async_flush"])
@pytest.mark.parametrize("first", [0, WALKS])
def test_the_protocol_holds(first: int, *, async_flush: bool) -> None:
    rules = Rules(async_flush=async_flush)
    assert first_violation(range(first, first + WALKS), rules) is None


def test_it_holds_without_the_shortcut_of_an_election() -> None:
    """That the replaced leader leaves the set at once saves a stall, and costs no safety."""
    rules = Rules(drops_the_replaced_leader=False)
    assert first_violation(range(WALKS), rules) is None


@pytest.mark.parametrize("rule", SWITCHED_OFF)
def test_every_rule_is_needed(rule: str) -> None:
    first = SWITCHED_OFF[rule]
    assert first_violation(range(first, first + WALKS), Rules(**{rule: False})) is not None


@pytest.mark.parametrize("rule", SWITCHED_OFF_IN_ASYNC_FLUSH)
def test_every_rule_of_incarnations_is_needed(rule: str) -> None:
    first = SWITCHED_OFF_IN_ASYNC_FLUSH[rule]
    rules = Rules(async_flush=True, **{rule: False})
    assert first_violation(range(first, first + WALKS), rules) is not None


def test_no_rule_is_left_out() -> None:
    played = {*SWITCHED_OFF, *SWITCHED_OFF_IN_ASYNC_FLUSH}
    others = {"drops_the_replaced_leader", "min_in_sync", "async_flush"}
    assert played | others == set(Rules.__dataclass_fields__)
