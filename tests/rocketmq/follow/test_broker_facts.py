"""Where a broker is and what it says of itself: every mistake has its sentence."""

import json

import pytest

from tandemlog_server.rocketmq.follow.address import BrokerAddress, parse_address
from tandemlog_server.rocketmq.follow.broker_facts import facts_of, master_place, properties
from tandemlog_server.rocketmq.follow.following_file import Following
from tandemlog_server.rocketmq.wire.errors import BrokerError, WrongBrokerError

SETTINGS = {
    "brokerClusterName": "shop",
    "brokerName": "broker-a",
    "brokerRole": "SYNC_MASTER",
    "brokerPermission": "6",
    "haListenPort": "10912",
    "mappedFileSizeCommitLog": "1073741824",
}
RUNTIME = {"commitLogMinOffset": "0", "commitLogMaxOffset": "77", "brokerVersionDesc": "V4_9_7"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("rocketmq://10.0.0.1:10911", BrokerAddress((("10.0.0.1", 10911),))),
        ("rocketmq://[::1]:10911", BrokerAddress((("::1", 10911),))),
        (
            "rocketmq://ns1:9876,ns2:9876/broker-a",
            BrokerAddress((("ns1", 9876), ("ns2", 9876)), "broker-a"),
        ),
        ("rocketmq://ns1:9876/broker-a", BrokerAddress((("ns1", 9876),), "broker-a")),
    ],
)
def test_an_address_is_read_and_written_the_same(text: str, address: BrokerAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.0.0.1:10911", "must begin with rocketmq://"),
        ("rocketmq://10.0.0.1", "'10.0.0.1' is not host:port"),
        ("rocketmq://h:0", "'h:0' is not host:port"),
        ("rocketmq://h:99999", "'h:99999' is not host:port"),
        pytest.param("rocketmq://h:" + "1" * 5_000, "is not host:port", id="digits"),
        ("rocketmq://::1:10911", "must be in brackets"),
        ("rocketmq://a:1,b:2", "several places and no name"),
        ("rocketmq://a:1/", "no name behind the slash"),
    ],
)
def test_a_wrong_address_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="rocketmq://HOST:PORT") as caught:
        parse_address(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("registered", "place"),
    [
        ("10.0.0.1:10911", ("10.0.0.1", 10911)),
        ("::1:27212", ("::1", 27212)),
        ("2001:db8::7:10911", ("2001:db8::7", 10911)),
        ("[::1]:10911", ("::1", 10911)),
    ],
)
def test_the_last_colon_of_a_registered_address_separates_the_port(
    registered: str, place: tuple[str, int]
) -> None:
    table = {"brokerAddrTable": {"broker-a": {"brokerAddrs": {"0": registered}}}}
    assert master_place("broker-a", json.dumps(table).encode(), "ns:9876") == place


@pytest.mark.parametrize("registered", ["", "10911", ":10911", "h:", "h:0", "h:65536"])
def test_a_registered_address_without_a_port_is_refused(registered: str) -> None:
    table = {"brokerAddrTable": {"broker-a": {"brokerAddrs": {"0": registered}}}}
    with pytest.raises(BrokerError, match="is not host:port"):
        master_place("broker-a", json.dumps(table).encode(), "ns:9876")


def test_the_facts_of_a_broker() -> None:
    facts = facts_of("h", 10911, SETTINGS, RUNTIME)
    assert (facts.address, facts.ha_address) == ("h:10911", "h:10912")
    assert (facts.file_size, facts.begin_offset, facts.end_offset) == (1 << 30, 0, 77)
    assert (facts.version, facts.takes_writes) == ("4.9.7", True)
    assert not facts_of("h", 1, {**SETTINGS, "brokerPermission": "4"}, RUNTIME).takes_writes


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"brokerRole": "SLAVE"}, "is a slave itself: follow its master"),
        ({"enableControllerMode": "true"}, "controller mode"),
        ({"enableDLegerCommitLog": "true"}, "DLedger"),
    ],
)
def test_a_broker_that_cannot_be_followed_is_refused(changed: dict[str, str], words: str) -> None:
    with pytest.raises(WrongBrokerError, match=words):
        facts_of("h", 1, {**SETTINGS, **changed}, RUNTIME)


@pytest.mark.parametrize("key", [*SETTINGS])
def test_a_peer_that_does_not_say_what_a_broker_says_is_none(key: str) -> None:
    settings = {name: value for name, value in SETTINGS.items() if name != key}
    if key == "brokerRole":
        return  # 4.9 has it always; without it the log is taken all the same
    with pytest.raises(BrokerError, match=f"does not say its {key}"):
        facts_of("h", 1, settings, RUNTIME)


@pytest.mark.parametrize(
    "text", ["0", "--5", "-5", "4095", str(1 << 31), str(1 << 70), "9" * 5_000, "\u0663" * 5, "1e9"]
)
def test_a_size_that_no_log_file_has_is_named(text: str) -> None:
    with pytest.raises(BrokerError, match="as its mappedFileSizeCommitLog, which must be 4096 "):
        facts_of("h", 1, {**SETTINGS, "mappedFileSizeCommitLog": text}, RUNTIME)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"haListenPort": "0"}, "haListenPort, which must be 1 .. 65535"),
        ({"haListenPort": "99999"}, "haListenPort, which must be 1 .. 65535"),
        ({"brokerPermission": "-1"}, "brokerPermission, which must be 0 .. "),
        ({"brokerName": "b" * 70_000}, r"\(70000 characters\) as its brokerName, .* 255 char"),
        ({"brokerClusterName": "c" * 256}, "as its brokerClusterName, "),
    ],
)
def test_what_no_broker_says_of_itself_is_named(changed: dict[str, str], words: str) -> None:
    with pytest.raises(BrokerError, match=words) as caught:
        facts_of("h", 1, {**SETTINGS, **changed}, RUNTIME)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"commitLogMinOffset": "-2"}, "commitLogMinOffset, which must be -1 .. "),
        ({"commitLogMinOffset": "78"}, "begins at 78, its commitLogMinOffset, and ends at 77"),
        ({"commitLogMaxOffset": str(1 << 63)}, "commitLogMaxOffset, which must be -1 .. "),
        ({"bootTimestamp": "9" * 5_000}, "bootTimestamp, which must be 0 .. "),
    ],
)
def test_a_log_that_cannot_be_is_named(changed: dict[str, str], words: str) -> None:
    with pytest.raises(BrokerError, match=words):
        facts_of("h", 1, SETTINGS, {**RUNTIME, **changed})


def test_the_title_of_a_broker_moves_no_terminal() -> None:
    name = "a\x1b[2J\u202e\x9b"
    facts = facts_of("h", 1, {**SETTINGS, "brokerName": name}, RUNTIME)
    assert facts.title == "broker a\\u001b[2J\\u202e\\u009b of cluster shop at h:1"
    assert Following("shop", name).title == "broker a\\u001b[2J\\u202e\\u009b of cluster shop"


def test_properties_are_lines() -> None:
    assert properties(b"a=1\nb = x=y\n\nnothing\n") == {"a": "1", "b": "x=y"}


def test_a_broker_without_a_log_file_begins_at_0() -> None:
    runtime = {**RUNTIME, "commitLogMinOffset": "-1", "commitLogMaxOffset": "0"}
    facts = facts_of("h", 1, SETTINGS, runtime)
    assert (facts.begin_offset, facts.end_offset) == (0, 0)
