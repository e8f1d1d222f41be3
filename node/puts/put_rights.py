"""Whether a caller may put what a request holds: to each topic that a message is for.

A message that comes later, or with a transaction, goes to a topic of the store, which no caller has
a right to. What counts is the topic in its record. The records are not checked yet: one that says
no topic needs no right, and the store refuses it.
"""

from typing import Final

from tandemlog.format.constants import DELAY_TOPICS, HALF_TOPIC
from tandemlog_server.storage.delays.delay_check import real_topics
from tandemlog_server.storage.transactions.half_check import half_topics

from ..access.access_refusals import DeniedError
from ..access.caller import Caller
from ..error_status import RequestRefusedError
from .put_wire import PutRequest, batch_of

_WAITING: Final = frozenset(topic.encode() for topic in (*DELAY_TOPICS, HALF_TOPIC))


def require_writes(caller: Caller, request: PutRequest) -> None:
    """Raises DeniedError for the first topic that the caller may not write."""
    if caller.restricted is None or _WAITING.isdisjoint(request.topics):
        caller.require_writes(request.topics)
        return
    own = [index for index, topic in enumerate(request.topics) if topic not in _WAITING]
    try:
        caller.require_writes(request.topics[index] for index in own)
    except DeniedError as denial:
        denial.index = own[denial.index]
        raise
    try:
        batch = batch_of(request)
    except RequestRefusedError:
        return  # nothing of it is stored
    later = real_topics(batch) | half_topics(batch)
    try:
        caller.require_writes(topic.encode() for topic in later)
    except DeniedError as denial:
        denial.index, denial.record = -1, list(later.values())[denial.index]
        raise
