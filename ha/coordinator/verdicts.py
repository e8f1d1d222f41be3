"""What a failed attempt at one endpoint means for the request: may it be repeated?

    ELSEWHERE    it was certainly not done: it never left, or the member refused to take it
    AMBIGUOUS    it may have been done, or may yet be: a read is repeated, a change is not
    REFUSED      it was certainly not done, and no other endpoint would do it
    LEASE_LOST   it was certainly not done: the lease does not exist
    TOKEN        it was certainly not done: the login has to be renewed

A status that is not known here is AMBIGUOUS. Those of a member come with a text that begins with
`etcdserver:`, or `coordinator:` from the embedded one; the same code without it is gRPC's own,
which may also say that an answer could not be received.
"""

import asyncio
from enum import Enum
from typing import Any

import grpc

ANSWERED = ("etcdserver:", "coordinator:")
LEASE_NOT_FOUND = "etcdserver: requested lease not found"
AUTH_NOT_ENABLED = "etcdserver: authentication is not enabled"

# From a member, before it reads the request; the last from gRPC before the embedded coordinator.
_NOT_TAKEN = (
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "Concurrent RPC limit exceeded",
)
# From a server that has not read the request to its end.
_TOO_LARGE = ("grpc: received message larger than max", "SERVER: Received message larger than max")
_TOKEN = ("etcdserver: invalid auth token", "etcdserver: revision of auth store is old")
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class Verdict(Enum):
    """See the module."""

    ELSEWHERE = "elsewhere"
    AMBIGUOUS = "ambiguous"
    REFUSED = "refused"
    LEASE_LOST = "lease lost"
    TOKEN = "token"


class AttemptError(Exception):
    """One attempt failed. The text names the endpoint and what it said."""

    def __init__(self, verdict: Verdict, endpoint: str, reason: str) -> None:
        super().__init__(f"{endpoint}: {reason}")
        self.verdict = verdict
        self.endpoint = endpoint


def verdict_of(code: grpc.StatusCode, details: str) -> Verdict:
    """See the module."""
    if details.startswith(_NOT_TAKEN):
        return Verdict.ELSEWHERE
    if code is grpc.StatusCode.UNAVAILABLE and details.startswith("coordinator:"):
        return Verdict.ELSEWHERE
    if details.startswith(_TOKEN):
        return Verdict.TOKEN
    if details.startswith(LEASE_NOT_FOUND):
        return Verdict.LEASE_LOST
    if code is grpc.StatusCode.UNIMPLEMENTED or details.startswith(_TOO_LARGE):
        return Verdict.REFUSED
    if code in _REFUSALS and details.startswith(ANSWERED):
        return Verdict.REFUSED
    return Verdict.AMBIGUOUS


async def ended(endpoint: str, call: Any) -> AttemptError:
    """The failed attempt of a stream that ended where an answer, or a request, was due."""
    code, details = await call.code(), await call.details() or ""
    reason = details or f"the stream ended ({code.name})"
    return AttemptError(verdict_of(code, details), endpoint, reason)


def unless_cancelled(endpoint: str) -> AttemptError:
    """The failed attempt whose call was cancelled, because this client was closed: gRPC reports
    that to the waiting caller as a cancellation. Raises CancelledError if the caller itself was
    cancelled."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise asyncio.CancelledError
    return AttemptError(Verdict.AMBIGUOUS, endpoint, "this client was closed")


def attempt_error(endpoint: str, error: grpc.aio.AioRpcError) -> AttemptError:
    """The failed attempt that gRPC reports."""
    code, details = error.code(), error.details() or ""
    return AttemptError(verdict_of(code, details), endpoint, details or code.name)
