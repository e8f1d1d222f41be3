"""How often messages of an order were delivered, as RocketMQ's ConsumerOrderInfoManager counts."""

from tandemlog_server.rocketmq.clients.pop.order_counts import QUEUES_KEPT, OrderCounts, PoppedPlace

QUEUE = PoppedPlace("billing", "orders", 0)


def test_each_delivery_of_a_message_counts_for_all_that_were_delivered_with_it() -> None:
    counts = OrderCounts()
    assert counts.popped(QUEUE, "", {0: 0, 1: 0, 2: 0}) == {0: 0, 1: 0, 2: 0}
    # the engine counts an attempt of the first one alone
    assert counts.popped(QUEUE, "", {0: 1, 1: 0, 2: 0}) == {0: 1, 1: 1, 2: 1}
    # the first was acknowledged, and the next one was not delivered before
    assert counts.popped(QUEUE, "", {1: 0, 2: 0, 3: 0}) == {1: 2, 2: 2, 3: 0}


def test_the_same_attempt_counts_once() -> None:
    counts = OrderCounts()
    counts.popped(QUEUE, "one", {0: 0})
    assert counts.popped(QUEUE, "one", {0: 0}) == {0: 0}
    assert counts.popped(QUEUE, "two", {0: 1}) == {0: 1}
    assert counts.popped(QUEUE, "", {0: 2}) == {0: 2}
    # pops without an attempt id are never the same
    assert counts.popped(QUEUE, "", {0: 2}) == {0: 3}


def test_a_master_that_knows_no_delivery_begins_with_the_attempts() -> None:
    assert OrderCounts().popped(QUEUE, "", {4: 3, 5: 0}) == {4: 3, 5: 0}


def test_queues_have_counts_of_their_own_until_they_are_set_elsewhere() -> None:
    counts = OrderCounts()
    others = [QUEUE._replace(queue_id=1), QUEUE._replace(topic="other")]
    for each in (QUEUE, *others):
        counts.popped(each, "", {0: 0})
    counts.forget("billing", "orders")
    found = [counts.popped(each, "", {0: 0})[0] for each in (QUEUE, *others)]
    assert found == [0, 0, 1]


def test_what_was_not_popped_for_long_makes_room() -> None:
    counts = OrderCounts()
    for number in range(QUEUES_KEPT + 1):
        counts.popped(QUEUE._replace(queue_id=number), "", {0: 0})
    assert counts.popped(QUEUE._replace(queue_id=QUEUES_KEPT), "", {0: 0}) == {0: 1}
    assert counts.popped(QUEUE, "", {0: 0}) == {0: 0}
