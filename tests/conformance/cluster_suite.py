"""What a program sees of a cluster: the same of a node process and of tandemlog.testing.

A subclass gives the fixture `endpoint`, of a cluster whose store has its default limits. Each test
has a topic of its own with two queues.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import grpc
import numpy as np
import pytest

from tandemlog import (
    EARLIEST,
    LATEST,
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    FollowOptions,
    Message,
    Producer,
    ProducerOptions,
    ReceivedMessage,
    TransactionDecision,
    errors,
)
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import broker_pb2, broker_pb2_grpc, common_pb2

NUMBERS = itertools.count(1)
QUEUES = 2
MANUAL = FollowOptions(auto_commit_ms=None)


def read(endpoint: str, topic: str, **how: object) -> list[ReceivedMessage]:
    with (
        Consumer(endpoint) as consumer,
        consumer.follow(topic, until_end=True, **how) as stream,  # type: ignore[arg-type]
    ):
        return list(stream)


def bodies(messages: Sequence[ReceivedMessage]) -> list[bytes]:
    return [message.body for message in messages]


def raw_append(endpoint: str, request: broker_pb2.AppendRequest) -> broker_pb2.AppendResponse:
    with grpc.insecure_channel(endpoint) as channel:
        stub = broker_pb2_grpc.BrokerStub(channel)
        return next(stub.Append(iter([request]), timeout=60))


def put_request(topic: str, body: bytes = b"body", **fields: object) -> broker_pb2.AppendRequest:
    record = encode_record(topic=topic, body=body, **fields)  # type: ignore[arg-type]
    return broker_pb2.AppendRequest(
        request_id=1,
        topics=[topic],
        queue_topics=[0],
        queue_ids=[0],
        records=record,
        sizes=len(record).to_bytes(4, "little"),
        queue_indexes=b"\0\0",
    )


class ClusterSuite:
    """See the module."""

    @pytest.fixture
    def admin(self, endpoint: str) -> Iterator[Admin]:
        with Admin(endpoint) as admin:
            yield admin

    @pytest.fixture
    def producer(self, endpoint: str) -> Iterator[Producer]:
        with Producer(endpoint, ProducerOptions(linger_ms=0)) as producer:
            yield producer

    @pytest.fixture
    def topic(self, admin: Admin) -> str:
        name = f"suite-{next(NUMBERS)}"
        admin.create_topic(name, QUEUES)
        return name

    # ---- puts

    def test_a_put_has_a_position(self, producer: Producer, topic: str) -> None:
        first = producer.send(Message(topic, b"a", queue_id=1)).result(60)
        second = producer.send(Message(topic, b"b", queue_id=1)).result(60)
        assert (first.queue_id, first.queue_offset, second.queue_offset) == (1, 0, 1)
        assert second.physical_offset > first.physical_offset
        assert abs(second.store_timestamp - time.time() * 1000) < 60_000

    def test_every_field_comes_back(self, endpoint: str, producer: Producer, topic: str) -> None:
        sent = producer.send(
            Message(
                topic,
                b"body \xff\x00",
                keys=["k1", "k2"],
                tags="paid",
                properties={"source": "web", "name": "Grüße"},
                flag=7,
                born_timestamp=1_700_000_000_123,
            )
        ).result(60)
        [message] = read(endpoint, topic)
        assert message.body == b"body \xff\x00"
        assert (message.keys, message.tags, message.flag) == (["k1", "k2"], "paid", 7)
        assert message.properties["source"] == "web"
        assert message.properties["name"] == "Grüße"
        assert message.born_timestamp == 1_700_000_000_123
        assert (message.msg_id, message.physical_offset) == (sent.msg_id, sent.physical_offset)

    def test_columns(self, endpoint: str, producer: Producer, topic: str) -> None:
        result = producer.send_many(
            topic,
            [b"%d" % number for number in range(1000)],
            keys=[f"k{number}" for number in range(1000)],
            tags="bulk",
            queues=np.arange(1000, dtype=np.int32) % QUEUES,
        )
        assert result.count == 1000
        assert result.queue_offsets.tolist() == [number // QUEUES for number in range(1000)]
        for queue_id in range(QUEUES):
            found = read(endpoint, topic, queues=[queue_id])
            assert bodies(found) == [b"%d" % n for n in range(queue_id, 1000, QUEUES)]

    def test_equal_sharding_keys_keep_their_order(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        for number in range(20):
            producer.send(Message(topic, b"%d" % number, sharding_key="customer-4"))
        producer.flush()
        found = read(endpoint, topic)
        assert len({message.queue_id for message in found}) == 1
        assert bodies(found) == [b"%d" % number for number in range(20)]

    def test_a_compressed_body(self, endpoint: str, topic: str) -> None:
        with Producer(endpoint, ProducerOptions(compress_above=100)) as producer:
            producer.send(Message(topic, b"text " * 5000)).result(60)
        [message] = read(endpoint, topic)
        assert message.body == b"text " * 5000
        assert message.size < 1000

    def test_the_largest_body(self, endpoint: str, producer: Producer, topic: str) -> None:
        body = bytes(4 << 20)
        producer.send(Message(topic, body)).result(60)
        [message] = read(endpoint, topic)
        assert message.body == body

    # ---- refusals

    def test_an_unknown_topic(self, endpoint: str, producer: Producer) -> None:
        with pytest.raises(errors.UnknownTopicError, match="missing-topic"):
            producer.send(Message("missing-topic", b"x"))
        with pytest.raises(errors.UnknownTopicError, match="missing-topic"):
            read(endpoint, "missing-topic")

    def test_an_unknown_queue(self, endpoint: str, producer: Producer, topic: str) -> None:
        with pytest.raises(errors.UnknownQueueError):
            producer.send(Message(topic, b"x", queue_id=QUEUES))
        with pytest.raises(errors.UnknownQueueError):
            read(endpoint, topic, queues=[QUEUES])

    def test_a_body_that_is_too_large(self, producer: Producer, topic: str) -> None:
        with pytest.raises(errors.MessageTooLargeError) as raised:
            producer.send(Message(topic, bytes((4 << 20) + 1)))
        assert (raised.value.limit, raised.value.actual) == (4 << 20, (4 << 20) + 1)

    def test_a_reserved_property(self, producer: Producer, topic: str) -> None:
        with pytest.raises(errors.ReservedPropertyError, match="DELAY"):
            producer.send(Message(topic, b"x", properties={"DELAY": "3"}))

    def test_the_node_checks_what_a_client_did_not(self, endpoint: str, topic: str) -> None:
        unknown = raw_append(endpoint, put_request("missing-topic"))
        assert unknown.error.code == common_pb2.UNKNOWN_TOPIC
        request = put_request(topic)
        request.records = request.records.replace(b"body", b"BODY")
        assert raw_append(endpoint, request).error.code == common_pb2.BAD_RECORD
        assert raw_append(endpoint, put_request(topic)).status == broker_pb2.PUT_OK

    def test_a_topic_is_created_once(self, admin: Admin, topic: str) -> None:
        with pytest.raises(errors.TopicExistsError, match=topic):
            admin.create_topic(topic, QUEUES)
        with pytest.raises(errors.InvalidTopicNameError):
            admin.create_topic("no spaces please")
        assert admin.topic(topic).read_queues == QUEUES
        admin.delete_topic(topic)
        with pytest.raises(errors.UnknownTopicError):
            admin.topic(topic)

    # ---- retries

    def test_a_repeated_request_is_stored_once(self, endpoint: str, topic: str) -> None:
        options = ProducerOptions(producer_id=f"job-{topic}", epoch=1, linger_ms=0)
        places = []
        for _ in range(2):
            with Producer(endpoint, options) as producer:
                places.append(producer.send(Message(topic, b"once", queue_id=0)).result(60))
        assert [place.duplicate for place in places] == [False, True]
        assert places[0].physical_offset == places[1].physical_offset
        assert bodies(read(endpoint, topic)) == [b"once"]

    def test_a_successor_fences_a_producer(self, endpoint: str, topic: str) -> None:
        options = ProducerOptions(producer_id=f"name-{topic}", linger_ms=0)
        with Producer(endpoint, options) as old, Producer(endpoint, options) as new:
            old.send(Message(topic, b"first", queue_id=0)).result(60)
            new.send(Message(topic, b"new", queue_id=0)).result(60)
            with pytest.raises(errors.ProducerFencedError):
                old.send(Message(topic, b"old")).result(60)
        assert bodies(read(endpoint, topic)) == [b"first", b"new"]

    # ---- reads

    def test_pulls_say_where_the_queue_ends(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        producer.send_many(topic, [b"0", b"1", b"2"], queues=np.zeros(3, np.int32))
        with Consumer(endpoint) as consumer:
            # an acknowledged message is there for who asks for it; one that asks before it may get
            # an answer that ends sooner
            assert bodies(list(consumer.pull(topic, 0, 2, wait_ms=5_000))) == [b"2"]
            batch = consumer.pull(topic, 0, 1, wait_ms=5_000)
            assert bodies(list(batch)) == [b"1", b"2"]
            assert (batch.status, batch.next_offset, batch.max_offset) == ("FOUND", 3, 3)
            assert len(consumer.pull(topic, 0, 0, max_messages=2)) == 2
            assert consumer.pull(topic, 0, 3).status == "OFFSET_OVERFLOW_ONE"
            assert consumer.pull(topic, 0, 9).status == "OFFSET_OVERFLOW_BADLY"
            assert consumer.pull(topic, 1, 0).status == "NO_MATCHED_LOGIC_QUEUE"

    def test_tags_select(self, endpoint: str, producer: Producer, topic: str) -> None:
        # "Aa" and "BB" have the same hash
        for tag in ("Aa", "BB", "paid", ""):
            producer.send(Message(topic, tag.encode(), tags=tag, queue_id=0)).result(60)
        assert bodies(read(endpoint, topic, tags="Aa")) == [b"Aa"]
        assert bodies(read(endpoint, topic, tags="BB || paid")) == [b"BB", b"paid"]
        assert len(read(endpoint, topic, tags="*")) == 4

    def test_a_filter_selects_and_the_rest_counts_as_read(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        for number in range(8):
            properties = {"amount": str(number), "region": ("eu", "us")[number % 2]}
            message = Message(topic, b"%d" % number, properties=properties, queue_id=0)
            producer.send(message).result(60)
        assert bodies(read(endpoint, topic, where="amount > 3 AND region = 'us'")) == [b"5", b"7"]
        assert read(endpoint, topic, where="price > 3") == []
        with Consumer(endpoint) as consumer:
            batch = consumer.pull(topic, 0, 0, where="amount >= 2", max_messages=2)
            assert (bodies(list(batch)), batch.next_offset) == ([b"2", b"3"], 4)
            batch = consumer.pull(topic, 0, 2, where="amount < 2", wait_ms=50)
            assert (len(batch), batch.next_offset) == (0, 8)
            with pytest.raises(
                errors.InvalidArgumentError, match=r"filter at character 10: .* too early"
            ):
                consumer.pull(topic, 0, 0, where="amount > ")
            with pytest.raises(errors.InvalidArgumentError, match="filter is empty"):
                consumer.pull(topic, 0, 0, where=" ")

    def test_a_waiting_pull_gets_the_next_message(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        with Consumer(endpoint) as consumer, ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(consumer.pull, topic, 0, 0, wait_ms=20_000)
            producer.send(Message(topic, b"late", queue_id=0)).result(60)
            assert bodies(list(waiting.result(60))) == [b"late"]

    def test_a_waiting_pull_ends_without_a_message(self, endpoint: str, topic: str) -> None:
        with Consumer(endpoint) as consumer:
            batch = consumer.pull(topic, 0, 0, wait_ms=50)
        assert (len(batch), batch.status) == (0, "NO_MATCHED_LOGIC_QUEUE")

    def test_a_stream_follows(self, endpoint: str, producer: Producer, topic: str) -> None:
        with Consumer(endpoint) as consumer, consumer.follow(topic, start=LATEST) as stream:
            producer.send(Message(topic, b"new")).result(60)
            batch = stream.next_batch(timeout_ms=60_000)
            assert batch is not None
            assert bodies(list(batch)) == [b"new"]
            with pytest.raises(TimeoutError):
                stream.next_batch(timeout_ms=30)

    def test_keys_and_ids_are_found(self, admin: Admin, producer: Producer, topic: str) -> None:
        sent = producer.send(Message(topic, b"x", keys=["order-17"])).result(60)
        producer.send(Message(topic, b"y", keys=["order-18"])).result(60)
        with Consumer(admin.cluster().nodes[0].endpoint) as consumer:
            consumer.pull(topic, sent.queue_id, sent.queue_offset, wait_ms=5_000)
        [found] = admin.query_by_key(topic, "order-17")
        assert found.body == b"x"
        by_id = admin.query_by_id(sent.msg_id)
        assert by_id is not None
        assert by_id.body == b"x"
        [at] = admin.messages_at([sent.physical_offset])
        assert at.body == b"x"
        with pytest.raises(errors.OffsetOutOfRangeError):
            admin.messages_at([1 << 40])

    def test_offsets_by_time(self, endpoint: str, admin: Admin, topic: str) -> None:
        with Producer(endpoint, ProducerOptions(linger_ms=0)) as producer:
            first = producer.send(Message(topic, b"0", queue_id=0)).result(60)
            while int(time.time() * 1000) <= first.store_timestamp + 5:
                pass
            second = producer.send(Message(topic, b"1", queue_id=0)).result(60)
        assert bodies(read(endpoint, topic)) == [b"0", b"1"]
        between = first.store_timestamp + 1
        assert admin.search_offset(topic, between, queue_id=0) == {(topic, 0): 1}
        assert admin.search_offset(topic, 0, queue_id=0) == {(topic, 0): 0}
        date = datetime.fromtimestamp(second.store_timestamp / 1000, UTC)
        assert bodies(read(endpoint, topic, start=date)) == [b"1"]

    def test_ranges(self, endpoint: str, admin: Admin, producer: Producer, topic: str) -> None:
        producer.send_many(topic, [b"0", b"1"], queues=np.ones(2, np.int32))
        assert len(read(endpoint, topic)) == 2
        [held] = admin.ranges(topic)
        assert (held.queue_id, held.min_offset, held.max_offset) == (1, 0, 2)

    # ---- groups

    def test_a_group_continues_where_it_stopped(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        group = f"group-{topic}"
        producer.send_many(topic, [b"%d" % n for n in range(4)], queues=np.zeros(4, np.int32))
        with Consumer(endpoint, group=group, options=MANUAL) as consumer:
            with consumer.follow(topic, queues=[0], until_end=True) as stream:
                messages = iter(stream)
                assert [next(messages).body, next(messages).body] == [b"0", b"1"]
                stream.commit()
            assert consumer.committed(topic) == {(topic, 0): 2}
            with consumer.follow(topic, queues=[0], until_end=True) as stream:
                assert bodies(list(stream)) == [b"2", b"3"]
            consumer.commit({(topic, 0): 1})
        with Admin(endpoint) as admin:
            assert group in admin.groups()
            assert admin.committed(group, topic) == {(topic, 0): 1}

    # ---- transactions

    def test_a_transaction_is_seen_when_it_is_committed(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        with producer.transaction(Message(topic, b"a", keys="k", queue_id=0)) as t:
            sent = t.send(Message(topic, b"b", queue_id=1)).result(60)
            assert (sent.topic, sent.queue_id, sent.queue_offset) == (topic, 1, -1)
            assert read(endpoint, topic) == []
            result = t.commit()
        assert [(m.topic, m.queue_id, m.queue_offset) for m in result.messages] == [
            (topic, 0, 0), (topic, 1, 0),
        ]  # fmt: skip
        found = read(endpoint, topic)
        assert sorted(bodies(found)) == [b"a", b"b"]
        assert found[0].keys == ["k"]
        with pytest.raises(errors.TransactionEndedError):
            t.send(Message(topic, b"c"))

    def test_a_transaction_that_is_left_by_an_error_is_rolled_back(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        with (
            pytest.raises(ZeroDivisionError),
            producer.transaction([Message(topic, b"a"), Message(topic, b"b")]),
        ):
            _ = 1 // 0
        with producer.transaction(Message(topic, b"c")) as t:
            assert not t.rollback().committed
        with producer.transaction(Message(topic, b"seen")):
            pass
        assert bodies(read(endpoint, topic)) == [b"seen"]

    def test_a_transaction_with_a_message_that_cannot_be_sent(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        with (
            pytest.raises(errors.UnknownTopicError),
            producer.transaction(Message(topic, b"a")) as t,
        ):
            t.send(Message("missing-topic", b"b"))
        with pytest.raises(errors.UnknownQueueError):
            producer.transaction(Message(topic, b"a", queue_id=QUEUES)).__enter__()
        assert read(endpoint, topic) == []

    def test_a_transaction_that_was_not_entered_sends_nothing(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        transaction = producer.transaction(Message(topic, b"a"))
        for call in (lambda: transaction.send(Message(topic, b"b")), transaction.commit):
            with pytest.raises(errors.InvalidArgumentError, match="its block is entered"):
                call()
        assert read(endpoint, topic) == []

    def test_offsets_count_with_a_transaction(
        self, endpoint: str, producer: Producer, admin: Admin, topic: str
    ) -> None:
        group, target = f"group-{topic}", f"{topic}-out"
        admin.create_topic(target, QUEUES)
        producer.send_many(topic, [b"0", b"1", b"2"], queues=np.zeros(3, np.int32))
        with Consumer(endpoint, group=group, options=MANUAL) as consumer:
            with consumer.follow(topic, start=EARLIEST) as stream:
                messages = iter(stream)
                for number in range(2):
                    message = next(messages)
                    with producer.transaction() as t:
                        t.send(Message(target, message.body + b"!"))
                        t.commit_offsets(stream)
                        if number:
                            t.rollback()
            assert consumer.committed(topic)[topic, 0] == 1
            with consumer.follow(topic, start=EARLIEST) as stream:
                assert next(iter(stream)).body == b"1"
                with producer.transaction() as t:
                    t.commit_offsets({(topic, 1): 0}, group=f"other-{topic}")
                    t.commit_offsets(stream)
            assert consumer.committed(topic)[topic, 0] == 2
        assert bodies(read(endpoint, target)) == [b"0!"]
        assert admin.committed(f"other-{topic}", topic) == {(topic, 1): 0}

    def test_offsets_of_a_member_that_lost_its_queue_roll_the_transaction_back(
        self, endpoint: str, producer: Producer, topic: str
    ) -> None:
        group = f"group-{topic}"
        producer.send_many(topic, [b"0"], queues=np.zeros(1, np.int32))
        with (
            Consumer(endpoint, group=group, options=MANUAL) as consumer,
            consumer.follow(topic, start=EARLIEST) as stream,
        ):
            next(iter(stream))
            request = stream.transaction_offsets()

        # the member has left
        class Former:
            def transaction_offsets(self, what: object = None) -> broker_pb2.CommitOffsetsRequest:
                return request

        with (
            Consumer(endpoint, group=group, options=MANUAL) as consumer,
            consumer.follow(topic, start=EARLIEST) as stream,
        ):
            next(iter(stream))
            with (
                pytest.raises(errors.FencedMemberError),
                producer.transaction(Message(topic, b"x", queue_id=1)) as t,
            ):
                t.commit_offsets(Former())
        assert bodies(read(endpoint, topic)) == [b"0"]

    def test_a_check_decides_what_its_producer_has_left_open(
        self, endpoint: str, topic: str
    ) -> None:
        asked: list[Message] = []

        def decide(message: Message) -> TransactionDecision:
            asked.append(message)
            paid = (message.properties or {})["paid"] == "yes"
            return TransactionDecision.COMMIT if paid else TransactionDecision.ROLLBACK

        options = ProducerOptions(linger_ms=0, transaction_group=f"group-{topic}")
        with Producer(endpoint, options) as dying:
            for paid in ("yes", "no"):
                message = Message(topic, paid.encode(), properties={"paid": paid}, tags="t")
                dying.transaction(message).__enter__()
            dying.flush()
        with (
            Producer(endpoint, options, transaction_checker=decide) as producer,
            Consumer(endpoint) as consumer,
            consumer.follow(topic, start=EARLIEST) as stream,
        ):
            assert next(iter(stream)).body == b"yes"
            with pytest.raises(errors.InvalidArgumentError, match="transaction_checker"):
                producer.transaction().commit_offsets({(topic, 0): 1}, group="g")
            deadline = time.monotonic() + 60
            while len(asked) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert {message.body for message in asked} == {b"yes", b"no"}
        assert {(message.topic, message.tags) for message in asked} == {(topic, "t")}

    async def test_a_transaction_with_asyncio(self, endpoint: str, topic: str) -> None:
        async with AsyncProducer(endpoint) as producer:
            async with producer.transaction(Message(topic, b"x", queue_id=0)) as t:
                await t.send(Message(topic, b"y", queue_id=0))
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message(topic, b"z", queue_id=0)):
                    _ = 1 // 0
        async with AsyncConsumer(endpoint) as consumer:
            stream = await consumer.follow(topic, start=EARLIEST, until_end=True)
            async with stream:
                assert [message.body async for message in stream] == [b"x", b"y"]

    # ---- asyncio

    async def test_asyncio(self, endpoint: str, topic: str) -> None:
        async with AsyncProducer(endpoint) as producer:
            await (await producer.send(Message(topic, b"x", queue_id=0)))
            await producer.send_many(topic, [b"y", b"z"], queues=np.zeros(2, np.int32))
        async with AsyncConsumer(endpoint) as consumer:
            stream = await consumer.follow(topic, start=EARLIEST, until_end=True)
            async with stream:
                found = [message.body async for message in stream]
        assert found == [b"x", b"y", b"z"]

    # ---- messages that come later

    def test_a_message_comes_later(self, endpoint: str, producer: Producer, topic: str) -> None:
        sent = producer.send(
            Message(topic, b"later", keys="k", tags="t", queue_id=1),
            delay=timedelta(milliseconds=1_200),
        ).result(60)
        assert (sent.topic, sent.queue_id, sent.queue_offset) == (topic, 1, -1)
        assert sent.deliver_at_ms == sent.store_timestamp + 1_200
        producer.send(Message(topic, b"now", queue_id=1)).result(60)
        assert bodies(read(endpoint, topic)) == [b"now"]
        with (
            Consumer(endpoint) as consumer,
            consumer.follow(topic, queues=[1], start=EARLIEST) as stream,
        ):
            messages = iter(stream)
            assert next(messages).body == b"now"
            later = next(messages)
        assert (later.body, later.keys, later.tags) == (b"later", ["k"], "t")
        assert 0 <= later.store_timestamp - sent.deliver_at_ms < 5_000

    def test_a_message_comes_at_a_time(self, endpoint: str, topic: str) -> None:
        with Producer(endpoint, ProducerOptions(linger_ms=0)) as producer:
            at = datetime.now(UTC) + timedelta(milliseconds=700)
            sent = producer.send(Message(topic, b"x", queue_id=0), deliver_at=at).result(60)
            assert sent.deliver_at_ms == -(-at.timestamp() * 1000 // 1)
            past = producer.send(Message(topic, b"past", queue_id=0), deliver_at=1).result(60)
        assert past.recall_handle
        with Consumer(endpoint) as consumer, consumer.follow(topic, start=EARLIEST) as stream:
            messages = iter(stream)
            assert [next(messages).body, next(messages).body] == [b"past", b"x"]

    def test_a_message_is_called_back(self, endpoint: str, producer: Producer, topic: str) -> None:
        kept, gone = (
            producer.send(Message(topic, body, queue_id=0), delay=timedelta(seconds=2)).result(60)
            for body in (b"kept", b"gone")
        )
        producer.recall(topic, gone.recall_handle)
        producer.recall(topic, gone.recall_handle)
        with pytest.raises(errors.InvalidArgumentError, match="not to 'other'"):
            producer.recall("other", gone.recall_handle)
        with pytest.raises(errors.InvalidArgumentError, match="recall handle"):
            producer.recall(topic, "x")
        with pytest.raises(errors.InvalidArgumentError, match="only messages with delay"):
            producer.recall(topic, "")
        with Consumer(endpoint) as consumer, consumer.follow(topic, start=EARLIEST) as stream:
            assert next(iter(stream)).body == b"kept"
        with pytest.raises(errors.NotWaitingError, match="came"):
            producer.recall(topic, kept.recall_handle)
        assert bodies(read(endpoint, topic)) == [b"kept"]

    def test_what_waits_is_listed(
        self, endpoint: str, admin: Admin, producer: Producer, topic: str
    ) -> None:
        delays = [timedelta(hours=2), timedelta(hours=1)]
        sent = [
            producer.send(Message(topic, b"x" * 5, queue_id=1), delay=delay).result(60)
            for delay in delays
        ]
        listed = admin.delayed(topic)
        assert [each.recall_handle for each in listed] == [
            sent[1].recall_handle, sent[0].recall_handle,
        ]  # fmt: skip
        assert listed[0].deliver_at_ms == sent[1].deliver_at_ms
        assert (listed[0].topic, listed[0].queue_id, listed[0].body_bytes) == (topic, 1, 5)
        assert [each.topic for each in admin.delayed(limit=1)] == [topic]
        admin.recall(topic, listed[0].recall_handle)
        assert len(admin.delayed(topic)) == 1
        producer.recall(topic, listed[1].recall_handle)
        assert admin.delayed(topic) == []

    def test_what_cannot_come_later_is_refused(self, producer: Producer, topic: str) -> None:
        message = Message(topic, b"x", queue_id=0)
        later = producer.send(message, delay=timedelta(days=4))
        with pytest.raises(errors.InvalidArgumentError, match="the longest delay is 3 days"):
            later.result(60)
        for wrong, text in (
            ({"deliver_at": 1 << 70}, "the end of the year 9999"),
            ({"deliver_at": datetime(2030, 1, 1)}, "no time zone"),
            ({"delay": timedelta(seconds=-1)}, "a delay of -1000 ms"),
            ({"delay": timedelta(1), "deliver_at": 5}, "give one of them"),
        ):
            with pytest.raises(errors.InvalidMessageError, match=text):
                producer.send(message, **wrong)
        producer.send(message).result(60)

    async def test_later_with_asyncio(self, endpoint: str, topic: str) -> None:
        async with AsyncProducer(endpoint) as producer:
            message = Message(topic, b"x", queue_id=0)
            sent = await (await producer.send(message, delay=timedelta(minutes=1)))
            assert sent.deliver_at_ms == sent.store_timestamp + 60_000
            await producer.recall(topic, sent.recall_handle)
            await (await producer.send(message, delay=timedelta(milliseconds=50)))
        async with AsyncConsumer(endpoint) as consumer:
            stream = await consumer.follow(topic, start=EARLIEST)
            async with stream:
                assert (await anext(aiter(stream))).body == b"x"

    def test_only_a_node_says_what_a_record_follows_from(self, endpoint: str, topic: str) -> None:
        for properties in ({"TIMER_OUT_MS": "5"}, {"TIMER_DEL_UNIQKEY": "k"}, {"DELAY": "3"}):
            answer = raw_append(endpoint, put_request(topic, properties=properties))
            assert answer.error.code == common_pb2.BAD_RECORD
        answer = raw_append(endpoint, put_request(topic, prepared_transaction_offset=5))
        assert answer.error.code == common_pb2.BAD_RECORD
        assert "prepared_transaction_offset" in answer.error.message
        for properties in ({}, {"TIMER_OUT_MS": "5"}, {"TIMER_DEL_UNIQKEY": "k"}):
            answer = raw_append(endpoint, put_request("rmq_sys_wheel_timer", properties=properties))
            assert answer.error.code == common_pb2.BAD_RECORD
