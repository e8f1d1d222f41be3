"""What a broker says of itself to mqadmin and the dashboard: its numbers, its settings, its groups.

    28   KVTable: names and texts; clusterList and brokerStatus print the same names of any broker
    26   key=value lines, in the order of their keys
    200  a group as its bean; what is left out keeps its value, or has RocketMQ's default

Numbers of what this store does not have (thread pools with queues, a wheel of timers) are 0, since
the tools take a missing name for a fault.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted
from tandemlog_server.storage.metadata.topics import new_group

from .routes import encoded

WINDOWS_S: Final = (10.0, 60.0, 600.0)
"""Over which a broker gives its rates."""
VERSION: Final = "V5_5_0"
MAX_GROUP_BYTES: Final = 64 << 10
MAX_RETRIES: Final = 1_000
_POOLS: Final = ("send", "pull", "litePull", "query", "ack")
_ZEROS: Final = (
    "EndTransactionQueueSize",
    "dispatchMaxBuffer",
    "pageCacheLockTimeMills",
    "timerCongestNum",
    "timerOffsetBehind",
    "timerReadBehind",
)
_NO_RATES: Final = ("timerDequeueTps", "timerEnqueueTps")


@dataclass(frozen=True, slots=True)
class Totals:
    """Counted since the store was opened; `now` in seconds of a steady clock."""

    now: float
    puts: int = 0
    gets: int = 0
    found: int = 0
    missed: int = 0


class Rates:
    """Per second, from the totals at each look: no task has to count when no tool asks."""

    def __init__(self, first: Totals) -> None:
        self._looks = deque([first])

    def look(self, totals: Totals) -> dict[str, str]:
        """RocketMQ's names and texts: the rates over WINDOWS_S, or since the first look where that
        is later."""
        while len(self._looks) > 1 and totals.now - self._looks[1].now >= WINDOWS_S[-1]:
            self._looks.popleft()
        texts: dict[str, list[str]] = {}
        for window in WINDOWS_S:
            before = self._at_least(window, totals.now)
            seconds = max(totals.now - before.now, 1e-3)
            for name, more in (
                ("putTps", totals.puts - before.puts),
                ("getTransferredTps", totals.gets - before.gets),
                ("getFoundTps", totals.found - before.found),
                ("getMissTps", totals.missed - before.missed),
                ("getTotalTps", totals.found + totals.missed - before.found - before.missed),
            ):
                texts.setdefault(name, []).append(f"{more / seconds:.1f}")
        if totals.now - self._looks[-1].now >= 1.0:
            self._looks.append(totals)
        return {name: " ".join(values) for name, values in texts.items()}

    def _at_least(self, window: float, now: float) -> Totals:
        """The newest look that is `window` seconds old, else the oldest of all."""
        for each in reversed(self._looks):
            if now - each.now >= window:
                return each
        return self._looks[0]


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """Sizes in bytes, times in ms since 1970, `disk_used` a part of 1."""

    booted_ms: int
    now_ms: int
    min_offset: int
    max_offset: int
    behind_bytes: int
    unflushed_bytes: int
    earliest_ms: int
    disk_used: float
    disk_total: int
    disk_free: int
    puts: int
    put_bytes: int
    gets: int
    put_max_s: float
    put_p99_s: float
    active: bool
    build: str


def runtime_table(facts: RuntimeFacts, rates: Mapping[str, str]) -> bytes:
    """KVTable."""
    ratio = f"{facts.disk_used:.2f}"
    table = {
        **{f"{pool}ThreadPoolQueueSize": "0" for pool in _POOLS},
        **{f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0" for pool in _POOLS},
        **{f"{pool}ThreadPoolQueueCapacity": "0" for pool in _POOLS},
        **dict.fromkeys(_ZEROS, "0"),
        **dict.fromkeys(_NO_RATES, "0.0"),
        **rates,
        "bootTimestamp": str(facts.booted_ms),
        "brokerActive": "true" if facts.active else "false",
        "brokerVersionDesc": VERSION,
        "commitLogDirCapacity": (
            f"Total : {_gib(facts.disk_total)}, Free : {_gib(facts.disk_free)}."
        ),
        "commitLogDiskRatio": ratio,
        "commitLogMaxOffset": str(facts.max_offset),
        "commitLogMinOffset": str(facts.min_offset),
        "consumeQueueDiskRatio": ratio,
        "dispatchBehindBytes": str(facts.behind_bytes),
        "earliestMessageTimeStamp": str(facts.earliest_ms),
        "getMessageEntireTimeMax": "0",
        # a day is not told from another one: all counts are since the start
        "msgGetTotalTodayMorning": "0",
        "msgGetTotalTodayNow": str(facts.gets),
        "msgGetTotalYesterdayMorning": "0",
        "msgPutTotalTodayMorning": "0",
        "msgPutTotalTodayNow": str(facts.puts),
        "msgPutTotalYesterdayMorning": "0",
        "putLatency99": f"{facts.put_p99_s * 1000:.2f}",
        "putMessageAverageSize": f"{facts.put_bytes / max(facts.puts, 1):.1f}",
        "putMessageEntireTimeMax": str(round(facts.put_max_s * 1000)),
        "putMessageFailedTimes": "0",
        "putMessageSizeTotal": str(facts.put_bytes),
        "putMessageTimesTotal": str(facts.puts),
        "remainHowManyDataToFlush": f"{facts.unflushed_bytes} B",
        "runtime": _runtime(facts.now_ms - facts.booted_ms),
        "startAcceptSendRequestTimeStamp": "0",
        "tandemlogVersion": facts.build,
    }
    return encoded({"table": dict(sorted(table.items()))})


def config_text(settings: Mapping[str, object]) -> bytes:
    """Lines of Java properties; line ends in a value would begin another one, so there are none."""
    lines = []
    for key, value in sorted(settings.items()):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        lines.append(f"{key}={' '.join(text.split())}\n")
    return "".join(lines).encode()


def read_group(body: bytes) -> tuple[str, Mapping[str, object]]:
    """Name and bean of the group in the body of a request 200. Raises FormatError."""
    if len(body) > MAX_GROUP_BYTES:
        raise FormatError(f"a group has at most {MAX_GROUP_BYTES} bytes, not {len(body)}")
    try:
        bean = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the body is no JSON: {error}") from None
    name = bean.get("groupName") if isinstance(bean, dict) else None
    if not isinstance(name, str) or not name:
        raise FormatError("The specified group is blank.")
    return name, bean


def changed_group(
    name: str, bean: Mapping[str, object], existing: Mapping[str, object]
) -> dict[str, object]:
    """The row of the group with what `bean` says; other members of the `existing` row stay. Raises
    FormatError for a bean that no group can have."""
    row = dict(existing)
    for key, default in new_group(name).items():
        value = bean.get(key)
        if value is None:
            continue
        if type(value) is not type(default):
            raise FormatError(f"group {quoted(name)}: {key} cannot be {quoted(repr(value))}")
        row[key] = value
    row["attributes"] = _attributes(name, bean.get("attributes"), existing.get("attributes"))
    retries = row.get("retryMaxTimes")
    if not isinstance(retries, int) or not -1 <= retries <= MAX_RETRIES:
        raise FormatError(f"group {quoted(name)}: retryMaxTimes must be -1 .. {MAX_RETRIES}")
    return dict(sorted(row.items()))


def _attributes(name: str, wanted: object, existing: object) -> dict[str, str]:
    """Those of mqadmin have `+` before a key that is set, `-` before one that is taken away."""
    attributes = dict(existing) if isinstance(existing, dict) else {}
    if wanted is None:
        return attributes
    if not isinstance(wanted, dict) or not all(isinstance(each, str) for each in wanted.values()):
        raise FormatError(f"group {quoted(name)}: attributes must be texts")
    for key, value in wanted.items():
        if key.startswith("-"):
            attributes.pop(key[1:], None)
        else:
            attributes[key.removeprefix("+")] = value
    return attributes


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _runtime(milliseconds: int) -> str:
    seconds = max(milliseconds, 0) // 1000
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
