"""Only a node of the cluster opens a replication stream, and only as itself.

    call ──▶ a node?      ──▶ first frame: a hello ──▶ that of the hello? ──▶ the master's stream
             no: refused      none: refused            no: refused            each further frame:
                                                                              the proof still holds?

The proof is the certificate or the token of the call, of which this module knows only which nodes
they name. All of them have to name the node of the hello: proofs of two different nodes are
refused. A stream that is refused here has not reached the master, which remembers nothing of it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tandemlog.format.words import quoted

from ..errors import HaError
from .frames import Hello, Refusal, decode_slave_frame, encode_master_frame
from .replication_service import Context, ReplicationService

HELLO_TIMEOUT_S = 10.0
REFUSED_S = 1.0
"""How long to wait for the hello of a caller that is refused in any case. The hello is not used,
but if the call ended while the client still writes it, gRPC would tell the client that the write
failed, and not why."""


class NotProvenError(HaError):
    """A stream whose caller is not the node of its hello, or not any more."""


@dataclass(frozen=True, slots=True)
class NodeProof:
    """What a caller has proved: it is `name`, and its proofs name these `nodes`. `fault` is what is
    wrong with one of them; empty if nothing is."""

    name: str
    nodes: frozenset[str] = frozenset()
    fault: str = ""


class ProvenCall(Protocol):
    """One call of a caller that is known."""

    def proof(self) -> NodeProof:
        """What the caller proves now: a token may have been revoked since."""

    def refused(self, reason: str) -> None:
        """For the log."""


Prove = Callable[[Context], Awaitable[ProvenCall | None]]
"""Aborts a call whose caller is not known; None where no proof is required."""


def why_no_node(proof: NodeProof) -> str:
    """Why `proof` is not that of any node; empty if it is."""
    if proof.fault:
        return f"no proof of a node: {proof.fault}"
    if not proof.nodes:
        return (
            f"no proof of a node: {proof.name!r} is an identity without one. A slave shows the "
            "certificate of its node, or the token of an identity with that node"
        )
    return ""


def why_not_proven(proof: NodeProof, node_id: str) -> str:
    """Why a hello in the name of `node_id` is refused; empty if it is not."""
    fault = why_no_node(proof)
    if not fault and proof.nodes != {node_id}:
        others = ", ".join(map(quoted, sorted(proof.nodes - {node_id})))
        return f"the hello is of node {quoted(node_id)}, but its proof names another node: {others}"
    return fault


def proven_service(service: ReplicationService, prove: Prove) -> ReplicationService:
    """`service` for callers that `prove` lets in."""

    async def replicate(requests: AsyncIterator[bytes], context: Context) -> None:
        call = await prove(context)
        if call is None:
            await service.replicate(requests, context)
            return
        frames = aiter(requests)
        try:
            if fault := why_no_node(call.proof()):
                with contextlib.suppress(TimeoutError):
                    await _first(frames, REFUSED_S)
                raise NotProvenError(fault)
            first, node_id = await _hello(frames)
            _check(call, node_id)
        except HaError as error:
            call.refused(str(error))
            await context.write(encode_master_frame(Refusal(str(error), retry=False)))
            return
        await service.replicate(_checked(call, node_id, first, frames), context)

    return ReplicationService(replicate)


async def _hello(frames: AsyncIterator[bytes]) -> tuple[bytes, str]:
    try:
        first = await _first(frames, HELLO_TIMEOUT_S)
    except TimeoutError:
        raise NotProvenError(f"no hello came within {HELLO_TIMEOUT_S:g} s") from None
    frame = decode_slave_frame(first)
    if not isinstance(frame, Hello):
        raise NotProvenError("the first frame has to be a hello")
    return first, frame.node_id


async def _first(frames: AsyncIterator[bytes], seconds: float) -> bytes:
    async with asyncio.timeout(seconds):
        return await anext(frames, b"")


async def _checked(
    call: ProvenCall, node_id: str, first: bytes, frames: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    yield first
    async for frame in frames:
        try:
            _check(call, node_id)
        except NotProvenError as error:
            call.refused(str(error))
            raise
        yield frame


def _check(call: ProvenCall, node_id: str) -> None:
    if fault := why_not_proven(call.proof(), node_id):
        raise NotProvenError(fault)
