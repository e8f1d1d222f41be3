"""The audit log: lines that cannot be forged, and a bound on what strangers make it write."""

import logging

import pytest

from tandemlog_server.node.access.audit_log import (
    HOST_LINES,
    HOSTS,
    LINES,
    PERIOD_S,
    AuditLog,
    RefusalLines,
)
from tandemlog_server.node.access.caller_addresses import host_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_host_gets_a_few_lines_and_then_a_number() -> None:
    clock = Clock()
    lines = RefusalLines(clock)
    assert [lines.let("a") for _ in range(LINES)] == [0] * LINES
    assert [lines.let("a") for _ in range(5)] == [None] * 5
    assert lines.let("b") == 0
    clock.now = PERIOD_S
    assert lines.let("a") == 5
    assert lines.let("a") == 0


def test_many_hosts_share_a_bound_and_what_is_kept_of_them_is_bounded() -> None:
    clock = Clock()
    lines = RefusalLines(clock)
    written = sum(lines.let(f"host{number}") is not None for number in range(20 * HOSTS))
    assert written == LINES * HOST_LINES
    assert len(lines._hosts) <= HOSTS
    clock.now = PERIOD_S
    assert lines.let("another") == 20 * HOSTS - written - len(lines._hosts) + 1


def test_what_a_caller_chose_stays_in_its_line(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(lambda: 0.0)
    with caplog.at_level(logging.INFO, "tandemlog.audit"):
        audit.called("CreateTopic", "operator", "ipv4:1.2.3.4:5", 'name: "a"\ncall=x', "ok")
        audit.refused("Pull", "", "ipv4:1.2.3.4:5", "because\nrefused call=y" + "x" * 10_000)
    first, second = caplog.messages
    assert first == (
        'call=CreateTopic who=operator from=ipv4:1.2.3.4:5 arguments="name: \\"a\\"\\ncall=x" '
        "outcome=ok"
    )
    assert "\n" not in second
    assert second.startswith('refused call=Pull who=- from=ipv4:1.2.3.4:5 reason="because\\n')
    assert len(second) < 1_000


def test_a_name_that_a_certificate_chose_stays_in_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    audit = AuditLog(Clock())
    audit.called("DeleteTopic", "x from=ipv4:1.2.3.4:5 \ncall=x", "p", "")
    audit.refused("Pull", "a\nb", "p", "no")
    audit.called("DeleteTopic", "node/n1", "p", "")
    assert [each.partition(" from=p ")[0] for each in caplog.messages] == [
        'call=DeleteTopic who="x from=ipv4:1.2.3.4:5 \\ncall=x"',
        'refused call=Pull who="a\\nb"',
        "call=DeleteTopic who=node/n1",
    ]


def test_calls_of_no_identity_are_bounded_and_those_of_one_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    audit = AuditLog(lambda: 0.0)
    with caplog.at_level(logging.INFO, "tandemlog.audit"):
        for _ in range(5 * LINES):
            audit.called("CreateTopic", "", "ipv4:1.2.3.4:5", "", always=False)
            audit.called("CreateTopic", "operator", "ipv4:1.2.3.4:5", "")
    assert len(caplog.messages) == 6 * LINES


def test_the_host_of_a_peer() -> None:
    assert host_of("ipv4:10.0.0.7:51022") == "ipv4:10.0.0.7"
    assert host_of("ipv6:%5B::1%5D:51022") == "ipv6:%5B::1%5D"
    assert host_of("unix") == "unix"


def test_control_characters_are_made_visible(caplog: pytest.LogCaptureFixture) -> None:
    AuditLog(lambda: 0.0).refused("CreateTopic", "", "ipv4:10.0.0.1:1", "a\x9b2J\u202eb")
    assert '"a\\u009b2J\\u202eb"' in caplog.text


def test_lines_of_others_count_as_well() -> None:
    audit = AuditLog(lambda: 0.0)
    told = [audit.left_out("ipv4:10.0.0.1:1") for _ in range(LINES + 3)]
    assert told == [""] * LINES + [None] * 3
