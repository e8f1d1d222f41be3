"""Gets with a filter, whatever their limits, give what it selects and pass the rest."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, Bench
from tandemlog.format.filter.parser import parse
from tandemlog.format.record.record import decode_record
from tandemlog_server.storage.reads.filtering import LEAST_MESSAGES
from tandemlog_server.storage.reads.results import GetStatus

TAG_A = 97


def stored(amounts: list[int], **settings: Any) -> Bench:
    bench = Bench(replace(CONFIG, **settings))
    for number, amount in enumerate(amounts):
        properties = b"amount\x01%d\x02TAGS\x01%s\x02" % (amount, b"ab"[number % 2 :][:1])
        bench.store.put(batch_of([Put("T", 0, bytes(number % 7 * 50), properties)]))
    bench.settle()
    return bench


@settings(max_examples=25, deadline=None)
@given(
    amounts=st.lists(st.integers(0, 9), min_size=1, max_size=60),
    limit=st.integers(0, 9),
    messages=st.integers(0, 5),
    size=st.integers(1, 2_000),
    tagged=st.booleans(),
)
def test_nothing_selected_is_skipped(
    amounts: list[int], limit: int, messages: int, size: int, tagged: bool
) -> None:
    get = stored(amounts).store.reader.get
    hashes = [TAG_A] if tagged else []
    offset, offsets = 0, []
    for _ in range(len(amounts) + 1):
        result = get("T", 0, offset, messages, size, hashes, parse(f"amount < {limit}"))
        if result.status is GetStatus.OFFSET_OVERFLOW_ONE:
            break
        assert result.next_offset > offset
        data = bytes(result.records)
        assert len(result.sizes) <= (messages or 60)
        assert len(data) <= size or len(result.sizes) == 1
        for length in result.sizes.tolist():
            offsets.append(decode_record(data[:length]).queue_offset)
            data = data[length:]
        assert (result.status is GetStatus.FOUND) == bool(len(result.sizes))
        offset = result.next_offset
    assert offset == len(amounts)
    wanted = [n for n, amount in enumerate(amounts) if amount < limit]
    assert offsets == [n for n in wanted if not tagged or n % 2 == 0]


def test_a_heavy_filter_looks_at_few_messages_in_one_get() -> None:
    get = stored([5] * 100, queue_file_size=4_000).store.reader.get
    light = get("T", 0, 0, 0, 1_000, (), parse("amount > 7"))
    heavy = get("T", 0, 0, 0, 1_000, (), parse(" OR ".join(["amount>7"] * 650)))
    assert (light.status, light.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 100)
    assert (heavy.status, heavy.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, LEAST_MESSAGES)
    assert heavy.cost > 100 * light.cost


def test_a_filter_may_name_no_property() -> None:
    get = stored([5] * 100, queue_file_size=4_000).store.reader.get
    assert get("T", 0, 0, 0, 1 << 20, (), parse("1 < 2")).count == 100
    assert get("T", 0, 0, 0, 1 << 20, (), parse("FALSE")).count == 0
