"""The pulls of this door that wait for a message, by connection: none outlives its client.

begin ─▶ park ─▶ QueueReads.park ─▶ a message, its time, a stop, a change of role ─▶ ended
                      ▲
the connection ends ──┘  all of its pulls are answered with what there is, to no client
"""

from collections.abc import Callable

from tandemlog_server.rocketmq.wire.remoting import Command

from ...pulls.parked_reads import ParkedRead
from ...pulls.queue_reads import QueueReads
from ...pulls.reading import Reading, Wanted
from ..door.remoting_call import Connection, Ended, RemotingCall

Answer = Callable[[RemotingCall, Reading], Command]
"""Of a pull that was read. May raise."""
_Waiting = set[ParkedRead[Reading]]


class ParkedPulls:
    """See the module. Belongs to the loop."""

    def __init__(self, reads: QueueReads) -> None:
        self._reads = reads
        self._of: dict[Connection, _Waiting] = {}

    def park(self, call: RemotingCall, wanted: Wanted, answer: Answer, ended: Ended) -> bool:
        """Let a pull wait: `ended` is called when it is over. False, and nothing is begun, if it
        needs a task. Raises as QueueReads.read."""
        connection = call.connection
        if call.request.is_oneway or connection.closed:
            return False
        waiting = self._of.get(connection)
        if waiting is None:
            waiting = self._of[connection] = _Waiting()
            connection.on_close(lambda: self._closed(connection))
        parked: ParkedRead[Reading] | None = None

        def answered(reading: Reading | None, problem: Exception | None) -> None:
            waiting.discard(parked)
            response = None
            if reading is not None:
                try:
                    response = answer(call, reading)
                except Exception as fault:
                    problem = fault
            ended(call, response, problem)

        parked = self._reads.park(wanted, call.caller, as_it_is, answered)
        if parked is None:
            return False
        waiting.add(parked)
        return True

    def _closed(self, connection: Connection) -> None:
        for parked in tuple(self._of.pop(connection, ())):
            self._reads.end_parked(parked)


def as_it_is(reading: Reading) -> tuple[Reading, int]:
    """A reading, and the bytes of its records: the door's answer is made of it in the loop."""
    return reading, sum(len(each.result.records) for each in reading.queues)
