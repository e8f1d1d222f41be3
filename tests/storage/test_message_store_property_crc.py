"""The setting `property_crc`: RocketMQ's CRC over a whole record, written and held to."""

from dataclasses import replace

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, Bench, marked
from tandemlog.format.constants import PAGE
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.record.property_crc import verify_property_crc
from tandemlog.format.record.record import decode_record, encode_record
from tandemlog_server.storage.errors import BatchRefusedError, StoreBusyError

WITH_CRC = replace(CONFIG, property_crc=True)
FEW, MANY = 3, 70


def stored(bench: Bench, queue_id: int = 0) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while (got := bench.store.reader.get("T", queue_id, offset, 0, 4096)).count:
        position = 0
        for size in got.sizes.tolist():
            found.append(bytes(got.records[position : position + size]))
            position += size
        offset = got.next_offset
    return found


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("properties", [b"", b"TAGS\x01a\x02", b"K\x01" + b"v" * 90 + b"\x02"])
@pytest.mark.parametrize("born_host", ["127.0.0.1:5", "[::1]:5"])
def test_each_record_is_what_rocketmq_writes(count: int, properties: bytes, born_host: str) -> None:
    bench = Bench(WITH_CRC)
    puts = [Put("T", n % 2, b"b%d" % n * n, properties, born_host=born_host) for n in range(count)]
    result = bench.store.put(batch_of(puts))
    bench.settle()
    records = stored(bench) + stored(bench, 1)
    assert len(records) == count
    for data in records:
        record = decode_record(data)
        assert data == encode_record(
            topic="T", queue_id=record.queue_id, body=record.body, properties=properties,
            born_timestamp=record.born_timestamp, born_host=record.born_host,
            queue_offset=record.queue_offset, physical_offset=record.physical_offset,
            store_timestamp=record.store_timestamp, store_host=record.store_host,
            property_crc=True,
        )  # fmt: skip
    # a client knows the sizes that it sent, and is told what was added to each
    offsets, sent = [], [len(put.record()) for put in puts]
    for segment in result.segments:
        at = segment.physical_offset
        for size in sent[segment.first_index : segment.first_index + segment.count]:
            offsets.append(at)
            at += size + segment.record_extra
    assert offsets == sorted(decode_record(data).physical_offset for data in records)


def test_a_repeated_request_gets_the_first_answer_whatever_the_setting_is_now() -> None:
    bench = Bench(WITH_CRC)
    mark = ProducerMark("p", 1, 0, 0, 5)
    first = bench.put_marked(mark, 5)
    bench.settle()
    end = bench.store.log.wrote.value
    for setting in (True, False):
        bench.reopen(property_crc=setting)
        again = bench.put_marked(mark, 5)
        assert again.duplicate
        assert [each.record_extra for each in again.segments] == [20]
        assert again.segments[0].physical_offset == first.segments[0].physical_offset
        assert again.end_offset == first.end_offset == end


def test_a_request_that_was_torn_goes_on() -> None:
    bench = Bench(WITH_CRC)
    mark = ProducerMark("p", 1, 0, 0, 4)
    bench.put_marked(mark, 4)
    data = stored_log(bench)
    bench.store.truncate(sum(data[:2]))
    bench.put_marked(mark, 4)
    bench.settle()
    assert [decode_record(each).body for each in stored(bench)] == [
        put.body for put in marked(mark, 4)
    ]
    assert all(verify_property_crc(each, 0, len(each)) for each in stored(bench))


def stored_log(bench: Bench) -> list[int]:
    """Sizes of the records of the log."""
    bench.settle()
    return [len(each) for each in stored(bench)]


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize(
    ("properties", "code", "reason"),
    [
        (b"K\x01" + b"v" * 32_750, "PROPERTIES_TOO_LARGE", "the limit is 32747"),
        (b"K\x01v", "BAD_RECORD", "end them with 0x02"),
        (b"__CRC33#\x010123456789\x02", "BAD_RECORD", "too similar to __CRC32#"),
        (b"__CRC32#\x010123456789\x02", "BAD_RECORD", "is written by the node"),
    ],
)
def test_what_leaves_no_room_is_refused(
    count: int, properties: bytes, code: str, reason: str
) -> None:
    bench = Bench(replace(WITH_CRC, commit_log_file_size=1 << 20))
    puts = [Put("T")] * (count - 1) + [Put("T", properties=properties)]
    with pytest.raises(BatchRefusedError, match=reason) as caught:
        bench.store.put(batch_of(puts))
    assert (caught.value.code, caught.value.record_index) == (code, count - 1)
    assert bench.store.log.wrote.value == 0


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("property_crc", [True, False])
@pytest.mark.parametrize("length", [PAGE - 21, PAGE - 20, PAGE - 1, PAGE])
def test_a_zero_byte_that_is_taken_outlives_a_power_cut(
    count: int, length: int, property_crc: bool
) -> None:
    """With its CRC a record's properties may be long enough to hide a lost page."""
    bench = Bench(replace(CONFIG, commit_log_file_size=1 << 20, property_crc=property_crc))
    bench.put(3)
    bench.settle()
    bench.store.persist()
    properties = b"K\x01\0".ljust(length - 1, b"v") + b"\x02"
    batch = batch_of([Put("T", 0, b"%d" % n, properties) for n in range(count)])
    bench.clock.advance(1)
    taken = 3
    if length < PAGE - (20 if property_crc else 0):
        bench.store.put(batch)
        taken += count
    else:
        with pytest.raises(BatchRefusedError, match="a zero byte in them"):
            bench.store.put(batch)
    bench.put(5)
    bench.settle()
    bench.crash()
    assert len(bench.bodies()) == taken + 5


def test_a_record_that_fits_only_without_it_is_refused() -> None:
    limit = WITH_CRC.commit_log_file_size - 8
    frame = len(Put("T", body=b"").record())
    bench = Bench(WITH_CRC)
    bench.store.put(batch_of([Put("T", body=b"x" * (limit - frame - 20))]))
    with pytest.raises(BatchRefusedError, match="limit"):
        bench.store.put(batch_of([Put("T", body=b"x" * (limit - frame - 19))]))


def test_old_records_without_one_are_served_beside_new_ones_with_it() -> None:
    bench = Bench(CONFIG)
    bench.put(3)
    bench.settle()
    bench.reopen(property_crc=True)
    bench.put(3)
    bench.settle()
    checks = [verify_property_crc(each, 0, len(each)) for each in stored(bench)]
    assert checks == [None] * 3 + [True] * 3
    bench.reopen(property_crc=False)
    assert len(bench.bodies()) == 6


def test_a_flipped_bit_of_any_field_is_not_served() -> None:
    """Of one that no other check covers: the born time."""
    bench = Bench(WITH_CRC)
    bench.put(3)
    bench.settle()
    sizes = stored_log(bench)
    log = bench.files.content(bench.store.log.files[0].path)
    log[sizes[0] + 44] ^= 1
    with pytest.raises(StoreBusyError, match=r"T/0/0.*unit 1 points to offset .*commitlog"):
        bench.bodies()
    bench.store.reput.run_to()
    assert [decode_record(each).queue_offset for each in stored(bench)] == [0, 2]
