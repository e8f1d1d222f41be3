"""What an answer must be, whatever was asked: typed, said in a sentence, and never a traceback.

status OK, an answer without error          well
status OK, an answer with error.code        refused; INTERNAL and no message are findings
INVALID_ARGUMENT, RESOURCE_EXHAUSTED,       refused before there was an answer to put an error
UNIMPLEMENTED                               into; the details are a sentence
DEADLINE_EXCEEDED                           where the call was to wait
anything else                               a finding
"""

import re
from dataclasses import dataclass

import grpc

from fuzz.methods import LONG_POLLS, Method
from fuzz.requests import Call
from tandemlog.v1 import common_pb2

MOST_ERROR_BYTES = 4_096
_MAY_WAIT = (
    *LONG_POLLS,
    "/Append",
    "/Pull",
    "/Watch",
    "/Replicate",
    "/FetchSegmentRange",
    "/FetchLogState",
    "/ServerReflection",
)
_REFUSALS = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
# What gRPC says on this side where a stream ended while it wrote.
OWN_FAULT = "Internal error from Core"
_NEVER = ("Traceback", "Exception", "Sent message larger", "Unexpected <")
_PARTICULARS = re.compile(r"'[^']*'|\"\S*\"|\d+|\\\S+")


@dataclass(frozen=True)
class Outcome:
    """What became of a call; `status` OK with the raw answers, else with the details."""

    status: grpc.StatusCode
    details: str = ""
    answers: tuple[bytes, ...] = ()


def finding(call: Call, method: Method | None, outcome: Outcome) -> str:
    """What is wrong with the outcome; empty where nothing is."""
    status, details = outcome.status, outcome.details
    if status is not grpc.StatusCode.OK:
        return _status_finding(call, method, status, details)
    if method is None:
        return "an unknown method was answered"
    for answer in outcome.answers:
        message = method.answer.FromString(answer)
        if "error" not in message.DESCRIPTOR.fields_by_name:
            continue
        error = getattr(message, "error")  # noqa: B009 - the class is made at run time
        if isinstance(error, common_pb2.Error) or hasattr(error, "code"):
            if error.code == common_pb2.INTERNAL:
                return f"untyped error INTERNAL: {error.message[:200]}"
            if error.code and not error.message:
                return f"error {error.code} without a message"
            if len(error.message) > MOST_ERROR_BYTES:
                return f"an error of {len(error.message)} characters"
    return ""


def kind_of_answer(method: Method | None, outcome: Outcome) -> str:
    """What an answer says, without its numbers and what it quotes."""
    text = outcome.details
    if method is not None:
        for answer in outcome.answers[:1]:
            message = method.answer.FromString(answer)
            for name in ("error", "refusal"):
                known = message.DESCRIPTOR.fields_by_name.get(name)
                if known is not None and known.has_presence and message.HasField(name):
                    text = str(getattr(message, name))
    return f"{outcome.status.name} {_PARTICULARS.sub('#', text[:400])[:80]}"


def refused(method: Method, outcome: Outcome) -> bool:
    """Whether the call was not done: by its status, or by the error of its answer."""
    if outcome.status is not grpc.StatusCode.OK:
        return True
    messages = [method.answer.FromString(answer) for answer in outcome.answers]
    return any(
        each.HasField(name)
        for each in messages
        for name in ("error", "refusal")
        if name in each.DESCRIPTOR.fields_by_name
    )


def _status_finding(
    call: Call, method: Method | None, status: grpc.StatusCode, details: str
) -> str:
    if method is not None and method.streaming and details == OWN_FAULT:
        return ""
    if len(details) > MOST_ERROR_BYTES:
        return f"{status.name} with {len(details)} characters of details"
    if any(word in details for word in _NEVER):
        return f"{status.name}: {details[:200]}"
    if status is grpc.StatusCode.DEADLINE_EXCEEDED and any(part in call.path for part in _MAY_WAIT):
        return ""
    if status is grpc.StatusCode.UNIMPLEMENTED and method is None:
        return ""
    if status is grpc.StatusCode.NOT_FOUND and "Health" in call.path:
        return ""
    if status in _REFUSALS and details:
        return ""
    return f"{status.name}: {details[:200] or 'without a word'}"
