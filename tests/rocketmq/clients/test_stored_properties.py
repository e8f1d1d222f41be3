"""The properties that a broker stores: those that real brokers of 5.5 have written."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.golden import stores
from tandemlog.format.constants import (
    CLUSTER,
    MULTI_QUEUE_OFFSET,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMERS,
    UNIQ_KEY,
    WAIT,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import Record, decode_record, is_blank
from tandemlog_server.rocketmq.clients.stored_properties import (
    ASKS,
    MSG_REGION,
    OF_THE_STORE,
    TRACE_ON,
    BrokerFacts,
    PlainTexts,
    StoredText,
    add_broker_facts,
    java_order,
    member_properties,
    read_properties,
    stored_properties,
)

GOLDEN = [each for each in stores() if each.label in ("rocketmq-5.5.0-clean",)]
OF_THE_BROKER = (MSG_REGION, TRACE_ON, CLUSTER)


def records(directory: Path) -> list[Record]:
    found = []
    for path in sorted((directory / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data) and not is_blank(data, at):
            try:
                found.append(decode_record(data, at))
            except FormatError:
                break
            at += found[-1].size
    return found


def text_of(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda each: each.label)
def test_the_text_is_that_of_a_real_broker(golden: object, tmp_path: Path) -> None:
    store = GOLDEN[0].copy(tmp_path).store
    random, compared = Random(7), 0
    for record in records(store):
        stored = dict(record.properties)
        if MSG_REGION not in stored or MULTI_QUEUE_OFFSET in stored:
            continue  # a member of a batch
        sent = [name for name in stored if name not in (*OF_THE_BROKER, REAL_TOPIC, REAL_QUEUE_ID)]
        random.shuffle(sent)
        properties = read_properties(text_of({name: stored[name] for name in sent}))
        add_broker_facts(properties, BrokerFacts(stored[CLUSTER]))
        for name in (REAL_TOPIC, REAL_QUEUE_ID):
            if name in stored:
                properties[name] = stored[name]
        assert stored_properties(properties) == record.properties_raw
        compared += 1
    assert compared > 100


def test_names_of_one_place_stay_in_the_order_in_which_they_came() -> None:
    assert java_order(("UNIQ_KEY", "CLUSTER")) == ("UNIQ_KEY", "CLUSTER")
    assert java_order(("CLUSTER", "UNIQ_KEY")) == ("CLUSTER", "UNIQ_KEY")


def test_a_map_with_many_names_has_grown() -> None:
    names = tuple(f"n{number}" for number in range(97))
    with_clash = ("MSG_REGION", "TAGS", *names)
    # 128 places: 23 before 62; 256 places: 151 behind 62
    order = java_order(with_clash)
    assert order.index("TAGS") < order.index("MSG_REGION")


def test_a_member_of_a_batch_does_not_ask_for_more() -> None:
    asks = dict.fromkeys(("DELAY", "TRAN_MSG", "TIMER_OUT_MS", *TIMERS), "1")
    for name in (*asks, *OF_THE_STORE):
        text = text_of({"a": "1", name: "x", "b": "2"})
        assert member_properties(text.encode()) == b"a\x011\x02b\x012\x02"


def test_what_only_a_store_knows_is_left_out() -> None:
    text = text_of({"a": "1", **dict.fromkeys(sorted(OF_THE_STORE), "x"), "b": "2"})
    assert read_properties(text) == {"a": "1", "b": "2"}
    assert member_properties(text.encode()) == b"a\x011\x02b\x012\x02"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("", {}),
        ("a\x011", {"a": "1"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("\x01x\x02a\x01\x02b\x02c\x01d\x01e\x02", {"c": "d\x01e"}),
    ],
)
def test_a_text_is_read_as_a_broker_reads_it(text: str, read: dict[str, str]) -> None:
    assert read_properties(text) == read


def test_a_member_of_a_batch_keeps_its_text_and_gets_its_end() -> None:
    assert member_properties(b"") == b""
    assert member_properties(b"b\x012\x02a\x011") == b"b\x012\x02a\x011\x02"
    assert member_properties(b"__mine\x01y\x02") == b"__mine\x01y\x02"


PLAIN = PlainTexts(BrokerFacts("cluster-1"))
NAMES = st.sampled_from([UNIQ_KEY, WAIT, "TAGS", "KEYS", "n", "CLUSTER", *OF_THE_STORE, *ASKS, ""])
VALUES = st.sampled_from(["true", "false", "a\x01b", "", "\xe4", "\ud800"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=7), st.booleans(), st.sampled_from("\x01="))
def test_plain_properties_are_stored_as_by_way_of_a_map(
    pairs: list[tuple[str, str]], ended: bool, separator: str
) -> None:
    text = "\x02".join([f"{name}{separator}{value}" for name, value in pairs])
    text += "\x02" if ended else ""
    found = PLAIN.of(text)
    properties = read_properties(text)
    if found is None:
        plain = (
            separator == "\x01"
            and all(value not in ("", "\ud800") for _, value in pairs)
            and len({name for name, _ in pairs}) == len(pairs)
            and not {name for name, _ in pairs} & {"", "CLUSTER", *OF_THE_STORE, *ASKS}
            and UNIQ_KEY in properties
        )
        assert not plain
        return
    key, waits = properties[UNIQ_KEY], properties.get(WAIT) != "false"
    assert ASKS.isdisjoint(properties)
    add_broker_facts(properties, BrokerFacts("cluster-1"))
    assert found == StoredText(stored_properties(properties), key, waits)


def test_very_many_properties_are_read_by_way_of_a_map() -> None:
    text = "".join([f"{number}\x01x\x02" for number in range(64)]) + f"{UNIQ_KEY}\x01A\x02"
    assert PLAIN.of(text) is None
