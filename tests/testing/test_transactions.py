"""Transactions in tandemlog.testing: a test moves the date, and producers are asked again."""

from datetime import timedelta

from helpers.running import wait_until
from tandemlog import Admin, Message, Producer, ProducerOptions, TransactionDecision
from tandemlog.testing import Cluster

OPTIONS = ProducerOptions(transaction_group="shop")


def leave_open(cluster: Cluster, body: bytes) -> None:
    """As a program that ends before it has decided."""
    with Producer(cluster.endpoint, OPTIONS) as producer:
        producer.transaction(Message("orders", body)).__enter__()
        producer.flush()


def test_a_producer_is_asked_again_when_the_date_has_moved() -> None:
    asked: list[bytes] = []

    def decide(message: Message) -> TransactionDecision:
        asked.append(message.body)
        return TransactionDecision.UNKNOWN if len(asked) == 1 else TransactionDecision.COMMIT

    with Cluster(topics={"orders": 1}) as cluster:
        leave_open(cluster, b"order 1")
        with Producer(cluster.endpoint, OPTIONS, transaction_checker=decide):
            cluster.clock.advance(timedelta(minutes=1))
            wait_until("the first check", lambda: len(asked) == 1, 20)
            cluster.clock.advance(timedelta(minutes=1))
            wait_until("the second check", lambda: len(asked) == 2, 20)
            wait_until("the order", lambda: bool(cluster.messages("orders")), 20)
    assert asked == [b"order 1"] * 2


def test_what_nobody_decides_is_rolled_back_in_the_end() -> None:
    settings = {"transactions": {"max_checks": 2}}
    with Cluster(topics={"orders": 1}, settings=settings) as cluster:
        leave_open(cluster, b"order 1")

        def given_up() -> bool:
            cluster.clock.advance(timedelta(minutes=1))
            return admin.transactions() == []

        with Admin(cluster.endpoint) as admin:
            assert len(admin.transactions()) == 1
            wait_until("the end of all checks", given_up, 20)
        assert cluster.messages("orders") == []
        [aside] = cluster.messages("TRANS_CHECK_MAX_TIME_TOPIC")
        assert aside.body == b"order 1"
