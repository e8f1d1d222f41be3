"""Random transactions, leases and compactions: the machine and a plain dictionary agree.

The model keeps the whole content at every revision, so that reads of the past and the events of
watches are compared too. Now and then the machine is made again from what a disk would hold.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.coordinator_machines import EMPTY, MemoryDisk, delete, get, new_machine, put
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.node.embedded_coordinator.coordinator_refusals import RefusedError
from tandemlog_server.node.embedded_coordinator.state_machine import StateMachine  # noqa: TC001 - in an annotation that runs

KEYS = [b"a", b"b", b"c", b"d"]
Content = dict[bytes, tuple[bytes, int, int, int, int]]  # value, create, mod, version, lease


@dataclass
class Model:
    """`past[r]` is the content at revision r."""

    content: Content = field(default_factory=dict)
    past: dict[int, Content] = field(default_factory=lambda: {1: {}})
    revision: int = 1
    compacted: int = 0

    def in_range(self, key: bytes, end: bytes) -> list[bytes]:
        if not end:
            return [key] if key in self.content else []
        return sorted(each for each in self.content if key <= each < end)

    def holds(self, compare: pb.Compare) -> bool:
        value, create, mod, version, lease = self.content.get(compare.key, (None, 0, 0, 0, 0))
        held, given_ = {
            pb.Compare.VALUE: (value, compare.value),
            pb.Compare.CREATE: (create, compare.create_revision),
            pb.Compare.MOD: (mod, compare.mod_revision),
            pb.Compare.VERSION: (version, compare.version),
            pb.Compare.LEASE: (lease, compare.lease),
        }[compare.target]
        if held is None:
            return False
        return bool(
            {
                pb.Compare.EQUAL: held == given_,
                pb.Compare.NOT_EQUAL: held != given_,
                pb.Compare.GREATER: held > given_,  # type: ignore[operator]
                pb.Compare.LESS: held < given_,  # type: ignore[operator]
            }[compare.result]
        )

    def apply(self, branch: list[pb.RequestOp]) -> list[Any]:
        """What each operation gives: the content read, a count of deletions, None."""
        answers: list[Any] = []
        changed = False
        now = self.revision + 1
        for each in branch:
            if each.HasField("request_put"):
                wanted = each.request_put
                _, create, _, version, _ = self.content.get(wanted.key, (b"", now, 0, 0, 0))
                self.content[wanted.key] = (wanted.value, create, now, version + 1, wanted.lease)
                answers.append(None)
                changed = True
            elif each.HasField("request_delete_range"):
                gone = self.in_range(
                    each.request_delete_range.key, each.request_delete_range.range_end
                )
                for key in gone:
                    del self.content[key]
                answers.append(len(gone))
                changed = changed or bool(gone)
            else:
                found = self.in_range(each.request_range.key, each.request_range.range_end)
                answers.append({key: self.content[key] for key in found})
        if changed:
            self.revision = now
            self.past[now] = dict(self.content)
        return answers

    def end_lease(self, lease: int) -> None:
        kept = {key: each for key, each in self.content.items() if each[4] != lease}
        if kept != self.content:
            self.content = kept
            self.revision += 1
            self.past[self.revision] = dict(kept)


def content_of(kvs: Any) -> Content:
    return {
        kv.key: (kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease) for kv in kvs
    }


keys = st.sampled_from(KEYS)
ends = st.sampled_from([b"", b"b", b"c", b"z"])
values = st.sampled_from([b"", b"1", b"2"])
numbers = st.integers(0, 6)
leases = st.sampled_from([0, 0, 1, 2])


@st.composite
def compares(draw: st.DrawFn) -> pb.Compare:
    target, name = draw(
        st.sampled_from(
            [
                (pb.Compare.VALUE, "value"),
                (pb.Compare.CREATE, "create_revision"),
                (pb.Compare.MOD, "mod_revision"),
                (pb.Compare.VERSION, "version"),
                (pb.Compare.LEASE, "lease"),
            ]
        )
    )
    result = draw(st.sampled_from(pb.Compare.CompareResult.values()))
    compare = pb.Compare(key=draw(keys), target=target, result=result)
    setattr(compare, name, draw(values if name == "value" else numbers))
    return compare


operations = st.one_of(
    st.builds(put, keys, values, leases), st.builds(delete, keys, ends), st.builds(get, keys, ends)
)
transactions = st.builds(
    lambda c, s, f: pb.TxnRequest(compare=c, success=s, failure=f),
    st.lists(compares(), max_size=2),
    st.lists(operations, max_size=4),
    st.lists(operations, max_size=3),
)
steps = st.lists(
    st.one_of(
        transactions,
        st.tuples(st.just("compact"), st.integers(0, 3)),
        st.tuples(st.just("grant"), st.integers(1, 2)),
        st.tuples(st.just("revoke"), st.integers(1, 2)),
        st.just(("restart", 0)),
    ),
    max_size=30,
)


class Run:
    """One sequence of steps in both."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.machine: StateMachine = new_machine(EMPTY)
        self.model = Model()
        self.leases: set[int] = set()

    def step(self, step: Any) -> None:
        if isinstance(step, pb.TxnRequest):
            self.transact(step)
        else:
            getattr(self, step[0])(step[1])
        self.disk.commit(self.machine.pop_changes())

    def transact(self, request: pb.TxnRequest) -> None:
        succeeded = all(self.model.holds(each) for each in request.compare)
        branch = list(request.success if succeeded else request.failure)
        reason = self.refused(request, branch)
        if reason:
            with pytest.raises(RefusedError, match=reason):
                self.machine.txn(request, 0.0)
            return
        answer = self.machine.txn(request, 0.0)
        assert answer.succeeded is succeeded
        expected = self.model.apply(branch)
        assert answer.header.revision == self.model.revision
        for response, wanted in zip(answer.responses, expected, strict=True):
            if isinstance(wanted, dict):
                assert content_of(response.response_range.kvs) == wanted
                assert [kv.key for kv in response.response_range.kvs] == sorted(wanted)
            elif wanted is not None:
                assert response.response_delete_range.deleted == wanted

    def refused(self, request: pb.TxnRequest, taken: list[pb.RequestOp]) -> str:
        """What the machine must say; both branches are held to the first rule."""
        for branch in (request.success, request.failure):
            puts = [each.request_put.key for each in branch if each.HasField("request_put")]
            twice = len(set(puts)) < len(puts)
            for each in branch:
                if each.HasField("request_delete_range"):
                    gone = each.request_delete_range
                    first, end = gone.key, gone.range_end or gone.key + b"\0"
                    twice = twice or any(first <= key < end for key in puts)
            if twice:
                return "duplicate key"
        leases = {each.request_put.lease for each in taken} - {0}
        return "" if leases <= self.leases else "lease not found"

    def compact(self, back: int) -> None:
        revision = self.model.revision - back
        request = pb.CompactionRequest(revision=revision)
        if revision <= self.model.compacted:
            with pytest.raises(RefusedError, match="compacted"):
                self.machine.compact(request, 0.0)
            return
        self.machine.compact(request, 0.0)
        self.model.compacted = revision

    def grant(self, lease: int) -> None:
        if lease not in self.leases:
            self.machine.lease_grant(pb.LeaseGrantRequest(ID=lease, TTL=9), 0.0)
            self.leases.add(lease)

    def revoke(self, lease: int) -> None:
        if lease in self.leases:
            self.machine.lease_revoke(pb.LeaseRevokeRequest(ID=lease), 0.0)
            self.leases.discard(lease)
            self.model.end_lease(lease)

    def restart(self, _: int) -> None:
        self.machine = new_machine(self.disk.saved)
        assert set(self.machine.leases.table) == self.leases

    def compare(self) -> None:
        model, machine = self.model, self.machine
        assert machine.revision == model.revision
        first = max(1, model.compacted)
        for revision in range(first, model.revision + 1):
            request = pb.RangeRequest(key=b"a", range_end=b"\0", revision=revision)
            assert content_of(machine.range(request, 0.0).kvs) == model.past[revision]
        content: Content = dict(model.past[first])
        for revision in range(first + 1, model.revision + 1):
            for row in machine.versions.events(revision, revision):
                if row.deleted:
                    del content[row.key]
                else:
                    content[row.key] = (
                        row.value,
                        row.create_revision,
                        row.revision,
                        row.version,
                        row.lease,
                    )
            assert content == model.past[revision]
        live = machine.versions
        assert live.live == len(model.content)
        assert live.live_bytes == sum(len(k) + len(v[0]) for k, v in model.content.items())


@settings(max_examples=400)
@given(steps)
def test_machine_and_model_agree(taken: list[Any]) -> None:
    run = Run()
    for step in taken:
        run.step(step)
        run.compare()
    run.restart(0)
    run.compare()
