"""The recipes of docs/transactions.md do what the page says."""

import tandemlog
from documents.pages import DOCS, examples
from tandemlog.testing import Cluster

ENDPOINT = "127.0.0.1:10911"


def read(cluster: Cluster, topic: str) -> list[bytes]:
    return [message.body for message in cluster.messages(topic)]


def test_the_recipes_run() -> None:
    begin, transform, outbox = examples(DOCS / "transactions.md")
    with Cluster(topics={"orders": 1, "invoices": 1}) as cluster:

        def run(example: str) -> dict[str, object]:
            names: dict[str, object] = {"__name__": "example"}
            exec(compile(example.replace(ENDPOINT, cluster.endpoint), "page", "exec"), names)
            return names

        run(begin)
        assert read(cluster, "orders") == [b"order 17"]
        assert read(cluster, "invoices") == [b"invoice of order 17"]
        run(transform)
        assert read(cluster, "invoices")[1:] == [b"invoice of order 17"]
        with tandemlog.Admin(cluster.endpoint) as admin:
            assert admin.committed("billing", "orders") == {("orders", 0): 1}
        names = run(outbox)
        assert read(cluster, "orders") == [b"order 17", b"order 18"]
        checker = names["checker"]
        assert callable(checker)
        decision = tandemlog.TransactionDecision
        assert checker(tandemlog.Message("orders", b"", keys="18")) is decision.COMMIT
        assert checker(tandemlog.Message("orders", b"", keys="19")) is decision.ROLLBACK
