"""Producers as a client library has them: requests with numbers, sent until they are answered.

    chain   [ sent, no answer ... | new ]      in order; an answer is for the first of them

    answered                     leaves the chain: from now on it is a promise
    refused for now, no answer   stays, and is sent again with the same numbers
    gap, unknown producer        surely not stored, nor anything behind it: new epoch, from 0

What a refusal means is what tandemlog/produce/chain.py makes of it.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random

from fakes.batches import Put, batch_of
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.record.request_checksum import request_checksum
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.puts.put_path import PutResult


@dataclass(eq=False)
class Request:
    """One request. `result` is the master's, in its life number `life`; whoever sent it gets it
    when it is confirmed."""

    producer: str
    epoch: int
    sequence: int
    puts: list[Put]
    batch: RecordBatch
    result: PutResult | None = None
    life: int = -1
    acknowledged: bool = False

    def __str__(self) -> str:
        return f"request {self.producer}/{self.epoch}/{self.sequence}"

    def number(self, epoch: int, sequence: int) -> None:
        """Take these numbers; the bytes carry them."""
        self.epoch, self.sequence = epoch, sequence
        self.result, self.life = None, -1
        self.batch = batch_of(
            [marked(put, self) if not index else put for index, put in enumerate(self.puts)]
        )


def marked(put: Put, request: Request) -> Put:
    mark = ProducerMark(
        request.producer,
        request.epoch,
        request.sequence,
        0,
        len(request.puts),
        request_checksum(each.record() for each in request.puts),
    )
    value = b"__TL_SEQ\x01%s\x02" % mark.encode().encode()
    return Put(put.topic, put.queue_id, put.body, put.properties + value)


@dataclass
class Producer:
    """See the module."""

    name: str
    epoch: int = 0
    following: int = 0
    renumber: bool = False
    chain: deque[Request] = field(default_factory=deque)
    done: deque[Request] = field(default_factory=lambda: deque(maxlen=8))

    def request(self, puts: list[Put]) -> Request:
        """A new request at the chain's end."""
        made = Request(self.name, self.epoch, self.following, puts, batch_of(puts))
        made.number(self.epoch, self.following)
        self.following += 1
        self.chain.append(made)
        return made

    def begin_epoch(self, epoch: int) -> None:
        """Everything that has no answer gets new numbers."""
        self.epoch, self.following, self.renumber = epoch, 0, False
        self.done.clear()
        for request in self.chain:
            request.number(epoch, self.following)
            self.following += 1

    def restart(self, store: MessageStore) -> None:
        """The process is another one: it agrees upon an epoch, and knows of no request."""
        known = store.producers.describe(self.name)
        self.chain.clear()
        self.begin_epoch(max(self.epoch, known.epoch if known is not None else -1) + 1)


def some_puts(rng: Random, topics: list[str], serial: int) -> list[Put]:
    """What one request holds: one message mostly, or a few, of one queue or of several."""
    count = rng.choice((1, 1, 1, 2, 3, 5))
    topic, queue_id = rng.choice(topics), rng.randrange(2)
    puts = []
    for number in range(count):
        if rng.random() < 0.3:
            topic, queue_id = rng.choice(topics), rng.randrange(2)
        body = b"m%d.%d|" % (serial, number) + b"." * rng.choice((0, 20, 20, 200, 700))
        properties = b"TAGS\x01t%d\x02KEYS\x01k%d\x02" % (serial % 3, serial % 7)
        puts.append(Put(topic, queue_id, body, properties))
    return puts
