"""Magic numbers and the rules for names."""

import pytest

from tandemlog.format.constants import (
    client_topic_fault,
    group_fault,
    is_system_topic,
    stored_name_fault,
    topic_fault,
)


@pytest.mark.parametrize("topic", ["a", "T-1_%|", "x" * 127, "%RETRY%" + "g" * 248])
def test_topics_that_may_be(topic: str) -> None:
    assert topic_fault(topic) is None


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("", "empty"),
        ("x" * 128, "128 characters, the limit is 127"),
        ("%DLQ%" + "g" * 251, "256 characters, the limit is 255"),
        ("a b", "' '"),
        ("标签", "'标'"),
        ("a/b", "'/'"),
        ("..", "'.'"),
    ],
)
def test_topics_that_may_not_be(topic: str, fault: str) -> None:
    found = topic_fault(topic)
    assert found is not None
    assert fault in found


def test_groups() -> None:
    assert group_fault("GID_reader") is None
    assert group_fault("g" * 120) is None
    assert group_fault("g" * 121) == "it has 121 characters, the limit is 120"
    assert group_fault("") == "the name is empty"


def test_what_a_broker_has_made_may_have_more_characters() -> None:
    """Our limits are for what is created here."""
    assert topic_fault("x" * 255, new=False) is None
    assert client_topic_fault("x" * 255, new=False) is None
    assert topic_fault("x" * 256, new=False) == "it has 256 characters, the limit is 255"
    assert group_fault("g" * 134, new=False) is None
    assert group_fault("a b", new=False) is not None
    assert stored_name_fault("broker-a.example.org") is None
    assert stored_name_fault("g" * 500) is None
    for name in ("", "a\nb"):
        assert stored_name_fault(name) is not None


def test_system_topics() -> None:
    assert is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert is_system_topic("rmq_sys_wheel_timer")
    assert not is_system_topic("Orders")
