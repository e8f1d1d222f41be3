"""Whom the ports for RocketMQ let in, and how much is said about the others."""

import pytest

from tandemlog_server.rocketmq.serve.peers import COMPLAINT_S, MAX_COMPLAINTS, Door, Peers


@pytest.mark.parametrize(
    ("slaves", "address", "admitted"),
    [
        ((), "127.0.0.1", True),
        ((), "::1", True),
        ((), "10.0.0.1", False),
        (("10.0.0.0/24",), "10.0.0.255", True),
        (("10.0.0.0/24",), "10.0.1.0", False),
        (("10.0.0.0/24",), "127.0.0.1", False),
        (("10.0.0.7",), "::ffff:10.0.0.7", True),
        (("fe80::/10",), "fe80::1%eth0", True),
        (("10.0.0.7",), "n1.example", False),
    ],
)
def test_the_address_decides(slaves: tuple[str, ...], address: str, admitted: bool) -> None:
    assert Peers.of(slaves, ()).admits(address) is admitted


def test_one_that_counts_is_known_in_every_writing_of_its_address() -> None:
    peers = Peers.of(("10.0.0.7", "fe80::7"), ("10.0.0.7", "fe80:0::7"))
    assert peers.counts("::ffff:10.0.0.7")
    assert peers.counts("fe80::7%eth0")
    assert not peers.counts("10.0.0.8")


def test_each_address_and_all_together_have_a_bound() -> None:
    door = Door(Peers.of(("10.0.0.0/24",), ()), most=3, most_of_one=2)
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        assert not door.fault(address)
        door.enter(address)
    assert door.fault("10.0.0.1") == "2 connections from this address are open already"
    assert door.fault("10.0.0.2") == "3 connections are open already"
    door.leave("10.0.0.1")
    assert not door.fault("10.0.0.3")


def test_an_address_is_complained_about_once_a_minute_and_many_are_not() -> None:
    door = Door(Peers(), most=1, most_of_one=1)
    assert door.worth_logging("10.0.0.1", 0.0)
    assert not door.worth_logging("10.0.0.1", COMPLAINT_S - 1)
    assert door.worth_logging("10.0.0.1", COMPLAINT_S)
    said = [door.worth_logging(f"10.1.{n // 256}.{n % 256}", COMPLAINT_S) for n in range(1_000)]
    assert sum(said) == MAX_COMPLAINTS - 1
    assert door.worth_logging("10.2.0.1", 2 * COMPLAINT_S), "old complaints are forgotten"
