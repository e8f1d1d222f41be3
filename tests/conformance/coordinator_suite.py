"""What every coordinator must do: etcd, the embedded one, and the fake in memory.

A test class inherits `CoordinatorSuite` and gives it the fixture `opened`. Coordinators of real
processes are shared by its tests, so every key goes through `opened.key`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Protocol

import pytest

from tandemlog_server.ha.coordinator.coordinator import Coordinator
from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    LeaseLostError,
)
from tandemlog_server.ha.coordinator.values import (
    Change,
    Changes,
    Compare,
    Delete,
    Get,
    KeyRange,
    Listing,
    Put,
    Relation,
    Subject,
    Txn,
    WatchUpdate,
    absent,
    same_key,
    unchanged,
    with_prefix,
)

PATIENCE_S = 60.0


class Opened(Protocol):
    """A running coordinator."""

    def client(self) -> Coordinator:
        """A client of its own; the fixture closes it."""
        ...

    def key(self, name: str) -> bytes:
        """A key that no other test has."""
        ...

    async def compact(self) -> None:
        """Everything up to the present revision."""
        ...

    async def until(self, what: str, true: Callable[[], Awaitable[bool]]) -> None:
        """Let time pass, in small steps, until `true()`; AssertionError that names `what`."""
        ...


async def put(client: Coordinator, key: bytes, value: bytes, lease: int = 0) -> int:
    """The revision of the put."""
    return (await client.txn(Txn((), (Put(key, value, lease),)))).revision


async def value_of(client: Coordinator, key: bytes) -> bytes | None:
    found = await client.get(key)
    return found.kv.value if found.kv else None


async def told(
    watch: AsyncGenerator[WatchUpdate, None], count: int
) -> list[tuple[bytes, bytes | None]]:
    """The next changes of a watch, at least `count`: key, and value or None for a deletion."""
    found: list[Change] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            update = await anext(watch)
            assert isinstance(update, Changes)
            assert update.changes[-1].kv.mod_revision == update.revision
            found += update.changes
    return [(each.kv.key, None if each.deleted else each.kv.value) for each in found]


class CoordinatorSuite:
    """See the module."""

    # ---- compare and change

    async def test_an_absent_key(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        found = await client.get(key)
        assert found.kv is None
        assert found.revision >= 1
        listed = await client.range(with_prefix(key))
        assert listed.kvs == ()

    async def test_create_if_absent_once(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        mine = await client.txn(Txn((absent(key),), (Put(key, b"mine"),), (Get(KeyRange(key)),)))
        assert mine.succeeded
        other = opened.client()
        theirs = await other.txn(Txn((absent(key),), (Put(key, b"theirs"),), (Get(KeyRange(key)),)))
        assert not theirs.succeeded
        (kv,) = theirs.results[0].found
        assert (kv.value, kv.create_revision, kv.mod_revision, kv.version) == (
            b"mine",
            mine.revision,
            mine.revision,
            1,
        )

    async def test_a_change_counts_for_all_that_is_compared(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        first = await put(client, key, b"1")
        second = await put(client, key, b"2")
        kv = (await client.get(key)).kv
        assert kv is not None
        assert (kv.create_revision, kv.mod_revision, kv.version) == (first, second, 2)
        equal, other = Relation.EQUAL, Relation.NOT_EQUAL
        for compare, holds in (
            (unchanged(key, second), True),
            (unchanged(key, first), False),
            (same_key(key, first), True),
            (same_key(key, second), False),
            (absent(key), False),
            (Compare(key, Subject.VERSION, equal, 2), True),
            (Compare(key, Subject.VERSION, Relation.GREATER, 2), False),
            (Compare(key, Subject.VERSION, Relation.LESS, 3), True),
            (Compare(key, Subject.VALUE, equal, b"2"), True),
            (Compare(key, Subject.VALUE, other, b"2"), False),
            (Compare(key, Subject.LEASE, equal, 0), True),
            (Compare(opened.key("none"), Subject.VALUE, equal, b""), False),
            (Compare(opened.key("none"), Subject.VERSION, equal, 0), True),
        ):
            result = await client.txn(Txn((compare,), (Get(KeyRange(key)),)))
            assert result.succeeded is holds, compare
            assert result.revision >= second

    async def test_all_comparisons_must_hold(self, opened: Opened) -> None:
        client, a, b = opened.client(), opened.key("a"), opened.key("b")
        await put(client, a, b"1")
        both = await client.txn(Txn((absent(b), absent(a)), (Put(b, b"2"),)))
        assert not both.succeeded
        assert both.results == ()
        assert await value_of(client, b) is None

    async def test_operations_of_one_transaction(self, opened: Opened) -> None:
        client, a, b, c = opened.client(), opened.key("a"), opened.key("b"), opened.key("c")
        await put(client, c, b"old")
        result = await client.txn(
            Txn(
                (),
                (
                    Put(a, b"1"),
                    Get(KeyRange(a)),
                    Delete(KeyRange(c)),
                    Put(b, b"2"),
                    Get(with_prefix(opened.key(""))),
                ),
            )
        )
        assert [kv.value for kv in result.results[1].found] == [b"1"]
        assert result.results[2].deleted == 1
        assert [kv.key for kv in result.results[4].found] == [a, b]
        listed = await client.range(with_prefix(opened.key("")))
        assert [kv.mod_revision for kv in listed.kvs] == [result.revision] * 2

    async def test_only_changes_make_revisions(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        before = await put(client, key, b"1")
        nothing = await client.txn(Txn((), (Delete(KeyRange(opened.key("none"))),)))
        read = await client.txn(Txn((absent(key),), (Put(key, b"2"),), (Get(KeyRange(key)),)))
        assert nothing.results[0].deleted == 0
        assert nothing.revision == read.revision == before
        # not before + 1: a lease of another test may have ended
        assert await put(client, key, b"3") > before

    async def test_a_deleted_key_begins_again(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        first = await put(client, key, b"1")
        await client.txn(Txn((), (Delete(KeyRange(key)),)))
        again = await put(client, key, b"1")
        kv = (await client.get(key)).kv
        assert kv is not None
        assert (kv.create_revision, kv.version) == (again, 1)
        late = await client.txn(Txn((unchanged(key, first),), (Put(key, b"late"),)))
        assert not late.succeeded

    async def test_ranges_are_in_order_and_bytes_are_bytes(self, opened: Opened) -> None:
        client, prefix = opened.client(), opened.key("p/")
        names = [b"\xff\xff", b"a", b"\0", b"b/\xff"]
        for name in names:
            await put(client, prefix + name, b"\0\xff" + name)
        await put(client, opened.key("p"), b"not in it")
        listed = await client.range(with_prefix(prefix))
        assert [kv.key for kv in listed.kvs] == [prefix + name for name in sorted(names)]
        assert [kv.value for kv in listed.kvs] == [b"\0\xff" + name for name in sorted(names)]

    async def test_increments_of_many_are_all_counted(self, opened: Opened) -> None:
        key = opened.key("counter")

        async def increment(client: Coordinator, times: int) -> None:
            while times:
                kv = (await client.get(key)).kv
                compare = unchanged(key, kv.mod_revision) if kv else absent(key)
                number = int(kv.value) if kv else 0
                result = await client.txn(Txn((compare,), (Put(key, b"%d" % (number + 1)),)))
                times -= result.succeeded

        await asyncio.gather(*(increment(opened.client(), 5) for _ in range(4)))
        kv = (await opened.client().get(key)).kv
        assert kv is not None
        assert (kv.value, kv.version) == (b"20", 20)

    async def test_what_cannot_be_asked_is_refused(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        for txn in (
            Txn((), (Put(key, b"1"), Put(key, b"2"))),
            Txn((), (Put(b"", b"1"),)),
            Txn((), tuple(Put(opened.key(f"{n}"), b"") for n in range(129))),
            Txn((), (Put(key, b"v" * (2 << 20)),)),
        ):
            with pytest.raises(CoordinatorRefusedError):
                await client.txn(txn)
        assert await value_of(client, key) is None

    # ---- leases

    async def test_keys_end_with_their_lease_unless_it_is_renewed(self, opened: Opened) -> None:
        client = opened.client()
        kept, left = await client.grant_lease(2), await client.grant_lease(2)
        assert kept.lease_id != left.lease_id
        assert min(kept.ttl_s, left.ttl_s) >= 2
        k, l1, l2 = opened.key("kept"), opened.key("left1"), opened.key("left2")
        await put(client, k, b"", kept.lease_id)
        for key in (l1, l2):
            await put(client, key, b"", left.lease_id)

        async def gone() -> bool:
            renewed = await client.keep_alive(kept.lease_id)
            assert renewed.ttl_s >= 2
            return await value_of(client, l1) is None

        await opened.until("the keys of a lease to end with it", gone)
        assert await value_of(client, l2) is None
        assert await value_of(client, k) == b""
        await client.revoke_lease(kept.lease_id)
        with pytest.raises(LeaseLostError) as lost:
            await client.keep_alive(left.lease_id)
        assert lost.value.lease_id == left.lease_id

    async def test_revoking_deletes_the_keys_at_one_revision(self, opened: Opened) -> None:
        client = opened.client()
        lease = await client.grant_lease(60)
        a, b, free = opened.key("a"), opened.key("b"), opened.key("c")
        for key in (a, b):
            await put(client, key, b"", lease.lease_id)
        before = await put(client, free, b"")
        await client.revoke_lease(lease.lease_id)
        listed = await client.range(with_prefix(opened.key("")))
        assert [kv.key for kv in listed.kvs] == [free]
        watch = client.watch(with_prefix(opened.key("")), before + 1)
        async with aclosing(watch):
            update = await asyncio.wait_for(anext(watch), PATIENCE_S)
        assert isinstance(update, Changes)
        assert {(each.kv.key, each.deleted) for each in update.changes} == {(a, True), (b, True)}
        assert len({each.kv.mod_revision for each in update.changes}) == 1
        await client.revoke_lease(lease.lease_id)  # once more is fine

    async def test_a_lease_that_is_not_there(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        lease = await client.grant_lease(60)
        await client.revoke_lease(lease.lease_id)
        with pytest.raises(LeaseLostError):
            await client.keep_alive(lease.lease_id)
        with pytest.raises(LeaseLostError) as lost:
            await client.txn(Txn((), (Put(opened.key("a"), b""), Put(key, b"", lease.lease_id))))
        assert lost.value.lease_id == lease.lease_id
        assert (await client.range(with_prefix(opened.key("")))).kvs == ()

    async def test_a_put_without_lease_outlives_the_one_before(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        lease = await client.grant_lease(60)
        await put(client, key, b"1", lease.lease_id)
        held = await client.get(key)
        assert held.kv is not None
        assert held.kv.lease == lease.lease_id
        await put(client, key, b"2")
        await client.revoke_lease(lease.lease_id)
        assert await value_of(client, key) == b"2"

    # ---- watches

    async def test_a_watch_tells_every_change_in_order(self, opened: Opened) -> None:
        client, prefix = opened.client(), opened.key("")
        a, b = opened.key("a"), opened.key("b")
        start = await put(client, a, b"1")
        await put(client, opened.key("b"), b"2")
        watch = client.watch(with_prefix(prefix), start)
        async with aclosing(watch):
            assert await told(watch, 2) == [(a, b"1"), (b, b"2")]
            for number in range(20):
                await put(client, a, b"%d" % number)
            assert await told(watch, 20) == [(a, b"%d" % number) for number in range(20)]
            await client.txn(Txn((), (Put(a, b"x"), Delete(KeyRange(b)))))
            assert sorted(await told(watch, 2)) == [(a, b"x"), (b, None)]

    async def test_a_watch_hears_others_and_only_its_range(self, opened: Opened) -> None:
        client, other = opened.client(), opened.client()
        key = opened.key("k")
        start = (await client.get(key)).revision + 1
        watch = client.watch(KeyRange(key), start)
        async with aclosing(watch):
            waiting = asyncio.create_task(told(watch, 1))
            await put(other, opened.key("kk"), b"not it")
            await put(other, key, b"it")
            assert await waiting == [(key, b"it")]

    async def test_a_watch_resumes_where_it_ended(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        start = await put(client, key, b"0")
        async with aclosing(client.watch(KeyRange(key), start)) as watch:
            first = await asyncio.wait_for(anext(watch), PATIENCE_S)
        for number in (b"1", b"2"):
            await put(client, key, number)
        async with aclosing(client.watch(KeyRange(key), first.revision + 1)) as watch:
            assert await told(watch, 2) == [(key, b"1"), (key, b"2")]

    async def test_a_compacted_watch_gets_the_whole_range(self, opened: Opened) -> None:
        client, prefix = opened.client(), opened.key("")
        a, b = opened.key("a"), opened.key("b")
        start = await put(client, a, b"1")
        await put(client, a, b"2")
        await put(client, b, b"gone")
        await client.txn(Txn((), (Delete(KeyRange(b)),)))
        await put(client, opened.key("c"), b"3")
        await opened.compact()
        watch = client.watch(with_prefix(prefix), start)
        async with aclosing(watch):
            update = await asyncio.wait_for(anext(watch), PATIENCE_S)
            assert isinstance(update, Listing)
            assert [(kv.key, kv.value) for kv in update.kvs] == [
                (a, b"2"),
                (opened.key("c"), b"3"),
            ]
            await put(client, a, b"4")
            assert await told(watch, 1) == [(a, b"4")]

    async def test_a_watch_needs_a_revision(self, opened: Opened) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            await anext(opened.client().watch(KeyRange(b"k"), 0))

    async def test_closing_ends_watches_and_calls(self, opened: Opened) -> None:
        client, key = opened.client(), opened.key("k")
        revision = (await client.get(key)).revision

        async def watched() -> list[WatchUpdate]:
            return [each async for each in client.watch(KeyRange(key), revision + 1)]

        watching = asyncio.create_task(watched())
        await put(client, opened.key("other"), b"")
        await client.close()
        assert await asyncio.wait_for(watching, PATIENCE_S) == []
        with pytest.raises(CoordinatorUnavailableError):
            await client.get(key)
