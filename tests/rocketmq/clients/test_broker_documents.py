"""What a broker says of itself, and the settings of groups as mqadmin sends them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tandemlog.format.errors import FormatError
from tandemlog_server.rocketmq.clients.broker_documents import (
    MAX_GROUP_BYTES,
    Rates,
    RuntimeFacts,
    Totals,
    changed_group,
    config_text,
    read_group,
    runtime_table,
)
from tandemlog_server.storage.metadata.topics import new_group

FACTS = RuntimeFacts(
    booted_ms=1_000_000,
    now_ms=1_000_000 + ((1 * 24 + 2) * 3_600 + 3 * 60 + 4) * 1_000,
    min_offset=10,
    max_offset=5_000,
    behind_bytes=7,
    unflushed_bytes=9,
    earliest_ms=500,
    disk_used=0.25,
    disk_total=4 << 30,
    disk_free=3 << 30,
    puts=100,
    put_bytes=20_000,
    gets=40,
    put_max_s=0.5,
    put_p99_s=0.01,
    active=True,
    build="1.2.3",
)


def table(facts: RuntimeFacts = FACTS, rates: dict[str, str] | None = None) -> dict[str, str]:
    found: dict[str, str] = json.loads(runtime_table(facts, rates or {}))["table"]
    return found


def test_the_runtime_table_has_texts_that_tools_read() -> None:
    found = table(rates={"putTps": "1.0 2.0 3.0"})
    assert all(isinstance(each, str) for each in found.values())
    assert found["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert found["commitLogMinOffset"] == "10"
    assert found["commitLogMaxOffset"] == "5000"
    assert found["putTps"] == "1.0 2.0 3.0"
    assert float(found["commitLogDiskRatio"]) == 0.25
    assert found["brokerActive"] == "true"
    assert table(replace(FACTS, active=False))["brokerActive"] == "false"


def test_rates_are_of_the_last_seconds() -> None:
    rates = Rates(Totals(0.0))
    first = rates.look(Totals(5.0, puts=50, gets=20, found=10, missed=5))
    # all there is: five seconds
    assert first["putTps"] == "10.0 10.0 10.0"
    assert first["getTotalTps"] == "3.0 3.0 3.0"
    for second in range(6, 1_000):
        found = rates.look(Totals(float(second), puts=50))
    assert found["putTps"] == "0.0 0.0 0.0"
    burst = rates.look(Totals(1_000.0, puts=650))["putTps"].split()
    assert [float(each) for each in burst] == sorted(map(float, burst), reverse=True)
    assert float(burst[0]) > 0


def test_looks_in_one_moment_are_kept_once() -> None:
    rates = Rates(Totals(0.0))
    for _ in range(100):
        rates.look(Totals(0.5, puts=1))
    assert rates.look(Totals(1.0, puts=10))["putTps"].split()[0] == "10.0"


def test_settings_are_lines_of_which_no_value_begins_another() -> None:
    text = config_text({"b": True, "a": "x\ny=1", "c": 5})
    assert text == b"a=x y=1\nb=true\nc=5\n"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"groupName": 5}',
        b'{"groupName": ""}',
        b" " * MAX_GROUP_BYTES + b"{}",
    ],
)
def test_what_is_no_group_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        read_group(body)


def test_a_group_is_read() -> None:
    assert read_group(b'{"groupName": "g", "retryMaxTimes": 3}') == (
        "g",
        {"groupName": "g", "retryMaxTimes": 3},
    )


def test_a_change_keeps_what_it_does_not_name() -> None:
    existing = {**new_group("g"), "retryMaxTimes": 3, "of another version": 1}
    changed = changed_group("g", {"groupName": "g", "consumeMessageOrderly": True}, existing)
    assert changed == {**existing, "consumeMessageOrderly": True}


def test_attributes_are_set_and_taken_away_one_by_one() -> None:
    existing = {**new_group("g"), "attributes": {"a": "1", "b": "2"}}
    bean = {"attributes": {"+c": "3", "-a": "", "b": "5"}}
    assert changed_group("g", bean, existing)["attributes"] == {"b": "5", "c": "3"}
    assert changed_group("g", {}, existing)["attributes"] == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    "bean",
    [
        {"retryMaxTimes": "3"},
        {"retryMaxTimes": True},
        {"retryMaxTimes": -2},
        {"retryMaxTimes": 1 << 40},
        {"consumeEnable": 1},
        {"attributes": []},
        {"attributes": {"+a": 1}},
    ],
)
def test_a_group_that_cannot_be_so_is_refused(bean: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="group 'g'"):
        changed_group("g", bean, new_group("g"))
