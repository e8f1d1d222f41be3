"""Channels to the nodes of one cluster, and finding its master.

    seeds ──DescribeCluster──▶ every node that responds names all nodes, and itself
                 │
                 └─▶ Topology: nodes with role, epoch, lag; the master = the node that calls
                     itself so with the highest epoch

A client can start from any node. A node is used under the endpoint at which it responded, so
addresses that only the nodes can reach do no harm if the seeds cover them. The client asks for the
topology again when a node reports that it is not the master, does not respond, or the topology is
old. It never goes back to a master of an older epoch than the newest one that it has heard of
(newest_epoch.py).

Which answers count is in belief.py. The first picture waits OTHERS_S for seeds that are silent, so
that a stranger does not win by answering first; as long as one of them has never said anything it
is asked again in the background. If another cluster turns out to be the right one, all that was
begun with the first is ended: `epochs` is another object then.

A connection looks at the files of its Security once a second at most. Renewed certificates make
new channels; those in use before serve the calls that have begun. A new token goes with the next
call.

One event loop owns a connection.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeVar

from ..errors import (
    AuthenticationError,
    ClientClosedError,
    EventLoopError,
    ForkedClientError,
    NodeUnavailableError,
    NoMasterError,
    PermissionDeniedError,
    SecurityError,
    TandemlogError,
)
from ..lazy import lazy
from ..telemetry.outages import Outages
from ..transport.security_files import SecurityFiles
from ..v1 import admin_pb2
from .belief import Answers, fits, is_settled
from .connection_options import ConnectionOptions
from .endpoints import parse_endpoints
from .newest_epoch import NewestEpoch, deposed, is_current
from .node import Node, left_if_it_fails
from .paging import pages_of_topics
from .silent_master import Asked, SilentMaster
from .topology import NodeInfo, Topology, merge_answers

if TYPE_CHECKING:
    import tenacity
else:
    tenacity = lazy("tenacity")

logger = logging.getLogger(__name__)

OTHERS_S = 1.0
"""After the first response of a round, for the others."""
SETTLED_S = 0.2
"""For the others after the master's response, if that settles who the master is."""
AGAIN_S, AGAIN_MOST_S = 1.0, 60.0
"""Until a seed that has never answered is asked again: at first, and at most."""
AWAY_S = 0.5
"""Between two rounds of questions while the cluster is away."""
QUICK_ATTEMPTS = 30
"""So many follow each other quickly; see pauses."""

ResultT = TypeVar("ResultT")


def pauses() -> "tenacity.wait.wait_base":
    """Between attempts. A node that comes back after a crash serves after one or two seconds, and a
    client should not sleep through a further quarter: a tenth of a second at most for some three
    seconds, later a quarter, and always something by chance."""
    quick = tenacity.wait_exponential(multiplier=0.02, max=0.1)
    later = tenacity.wait_fixed(0.25)
    chance = tenacity.wait_random(0, 0.03)
    return tenacity.wait_chain(*QUICK_ATTEMPTS * [quick], later) + chance


class Connection:
    """The nodes of one cluster, found through any of `endpoints` ("host:port,host:port" or a
    sequence of such). Opens nothing before the first call."""

    def __init__(
        self, endpoints: str | Sequence[str], options: ConnectionOptions | None = None
    ) -> None:
        self.seeds = parse_endpoints(endpoints)
        self.options = options or ConnectionOptions()
        self.topology = Topology()
        self.master_id = ""
        """Of the node that `master` returned last: under its endpoint another one may answer later,
        and it may have other endpoints."""
        self.master_epoch = 0
        """In which it said that it is the master."""
        self.epochs = NewestEpoch()
        """Of the cluster that is believed: another object once that is another cluster."""
        self._topology_at = float("-inf")
        self._first_look: float | None = None
        self._was_answered = False
        self._outages = Outages(self.options.on_cluster_away, self.options.on_cluster_back)
        self._watcher: asyncio.Task[None] | None = None
        self._given = set(self.seeds)
        """The seeds, and all endpoints of nodes that were believed when each seed had been heard:
        a foreign cluster may be the only one that answers at first."""
        self._never_heard = set(self.seeds)
        self._patient = False
        self._listener: asyncio.Task[None] | None = None
        self._files = SecurityFiles(self.options.security)
        self._silence = SilentMaster(self)
        self._nodes: dict[str, Node] = {}
        self._retired: list[Node] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._master: Node | None = None
        self._discovery: asyncio.Task[Topology] | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends every call; waits for none."""
        self._closed = True
        ours = (self._watcher, self._listener, self._discovery)
        tasks = [task for task in ours if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._silence.close(), return_exceptions=True)
        nodes = [*self._nodes.values(), *self._retired]
        self._nodes, self._retired = {}, []
        await asyncio.gather(*(node.close() for node in nodes), *self._closing)

    def node(self, endpoint: str) -> Node:
        """The node at `endpoint`; its channel is created on first use, and again with renewed
        certificates. Raises SecurityError."""
        if self._closed:
            raise ClientClosedError("the client is closed")
        self.check_loop()
        node = self._nodes.get(endpoint)
        if node is None:
            node = self._nodes[endpoint] = self._new_node(endpoint)
        elif node.number != self._files.current().number:
            self._retire(node)
            node = self._nodes[endpoint] = self._new_node(endpoint)
        return node

    def check_loop(self) -> None:
        """Raises EventLoopError in another event loop than that of the first call."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise EventLoopError(
                "this client was first used in another event loop"
                + (", which is closed: " if self._loop.is_closed() else ": ")
                + "make a client in each loop, inside the function that asyncio.run gets"
            )

    def _new_node(self, endpoint: str) -> Node:
        return Node(
            endpoint,
            self._files,
            data_connections=self.options.data_connections,
            epochs=self.epochs,
            http_proxy=self.options.http_proxy,
            watched=self._watched,
        )

    def _watched(self, node: Node) -> AbstractAsyncContextManager[object]:
        """Around a call of `node`: one of the master is left if that is silent and not the master
        any more."""
        if self._master is not None and self._master.endpoint == node.endpoint:
            return self._silence.watched(node, self.master_id)
        master = self.topology.authority
        if master is not None and master.endpoint == node.endpoint:
            return self._silence.watched(node, master.node_id)
        return contextlib.nullcontext()

    async def responds(self, node: Asked, timeout_s: float) -> bool:
        """Whether the node at this endpoint says anything in this time."""
        request = admin_pb2.DescribeClusterRequest()
        asked = self.node(node.endpoint)
        try:
            await asked.ask(asked.admin.DescribeCluster, request, round(timeout_s * 1000))
        except NodeUnavailableError:
            return False
        except TandemlogError:
            pass  # a refusal is an answer
        return True

    def _retire(self, node: Node) -> None:
        """Calls that `node` has begun may end. Its channel is closed when the certificates are
        renewed once more, or with the connection."""
        older = [each for each in self._retired if each.endpoint == node.endpoint]
        self._retired = [each for each in self._retired if each not in older] + [node]
        for each in older:
            task = asyncio.get_running_loop().create_task(each.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def master(self) -> Node:
        """The master of the newest epoch; raises NoMasterError naming who was asked, without a
        retry."""
        current = is_current(self.master_epoch, self.epochs.value)
        if self._master is not None and current and not self._closed:
            self._master = self.node(self._master.endpoint)
            return self._master
        await self.refresh()
        master = self.authority()
        self._master, self.master_id = self.node(master.endpoint), master.node_id
        self.master_epoch = master.epoch
        return self._master

    def authority(self) -> NodeInfo:
        """Topology.authority, unless an answer has told of a newer epoch since. Raises
        NoMasterError."""
        topology, newest = self.topology, self.epochs.value
        master = topology.authority
        if master is not None and is_current(master.epoch, newest):
            return master
        if topology.master is None:
            raise NoMasterError(f"no node says that it is the master: {topology.asked_text()}")
        newest = max(newest, topology.newest_epoch)
        raise NoMasterError(str(deposed(topology.master.endpoint, topology.master.epoch, newest)))

    async def wait_for_master(self) -> None:
        """Waits until a node reports that it is the master; raises NoMasterError after
        retry_timeout_ms."""

        async def is_there(node: Node) -> None:
            """It is enough that there is one."""

        await self.on_master(is_there)

    def forget_master(self, node: Node, reason: str = "") -> None:
        """The next call looks for the master again, unless another one was found meanwhile."""
        if self._master is node:
            self._master = None

    async def current_topology(self) -> Topology:
        """The topology of the cluster, not older than topology_max_age_ms."""
        if time.monotonic() - self._topology_at < self.options.topology_max_age_ms / 1000:
            return self.topology
        return await self.refresh()

    async def refresh(self, *, patient: bool = False) -> Topology:
        """Asks all nodes who they are; callers at the same time share one round. `patient`: a round
        of its own, which waits for every seed as the first one does."""
        if patient and self._discovery is not None:
            await asyncio.wait([self._discovery])
        if self._closed:
            raise ClientClosedError("the client is closed")
        self.check_loop()
        if self._discovery is None or self._discovery.done():
            loop = asyncio.get_running_loop()
            self._discovery = loop.create_task(self._discover(patient), name="tandemlog-discovery")
        try:
            return await asyncio.shield(self._discovery)
        except TandemlogError as error:
            raise error.copy() from None

    async def on_master(self, ask: Callable[[Node], Awaitable[ResultT]]) -> ResultT:
        """`ask` of the master, again on another one or later, until retry_timeout_ms is over;
        then the last error. Only for requests that may be repeated."""
        return await self.ask_nodes(self.master, self.forget_master, ask)

    async def ask_nodes(
        self,
        choose: Callable[[], Awaitable[Node]],
        leave: Callable[[Node, str], object],
        ask: Callable[[Node], Awaitable[ResultT]],
        timeout_ms: int | None = None,
    ) -> ResultT:
        """`ask` of the node that `choose` gives, of another one or later if it fails, until
        `timeout_ms` (default: retry_timeout_ms) is over; then the last error."""

        async def once() -> ResultT:
            node = await choose()
            with left_if_it_fails(node, leave):
                return await ask(node)

        began = time.monotonic()
        try:
            # Mostly that is all, and to begin a loop of retries costs more than a small answer.
            return await once()
        except TandemlogError as error:
            failures = [error]
        limit_ms = self.options.retry_timeout_ms if timeout_ms is None else timeout_ms
        async for attempt in self.retrying(limit_ms - 1e3 * (time.monotonic() - began)):
            with attempt:
                if failures:
                    raise failures.pop()
                return await once()
        raise AssertionError("retries end with a result or an error")

    def retrying(self, timeout_ms: float | None = None) -> "tenacity.AsyncRetrying":
        """Tries until `timeout_ms` (default: retry_timeout_ms) as long as errors may pass."""
        limit = self.options.retry_timeout_ms if timeout_ms is None else timeout_ms
        return tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(
                lambda error: is_retryable(error) and not self._hopeless()
            ),
            wait=pauses(),
            stop=tenacity.stop_after_delay(limit / 1000),
            reraise=True,
        )

    def _hopeless(self) -> bool:
        """Whether no node has ever answered, for connect_timeout_ms."""
        if self._was_answered or self._first_look is None:
            return False
        return time.monotonic() - self._first_look >= self.options.connect_timeout_ms / 1000

    async def topics(self, names: Sequence[str] = ()) -> list[admin_pb2.Topic]:
        """The topics `names`, or all, as the master knows them. The node decides whether unknown
        ones are left out or raise UnknownTopicError."""
        timeout_ms = self.options.request_timeout_ms
        return await pages_of_topics(
            names,
            lambda request: self.on_master(
                lambda node: node.ask(node.admin.ListTopics, request, timeout_ms)
            ),
            of_master=True,
        )

    async def _discover(self, patient: bool = False) -> Topology:
        endpoints = dict.fromkeys(self.seeds)
        endpoints.update(
            dict.fromkeys(node.endpoint for node in self.topology.nodes if node.endpoint)
        )
        if self._first_look is None:
            self._first_look = time.monotonic()
        self._patient = patient or not self.topology.nodes
        answers, failures = await self._describe_all(endpoints)
        self._never_heard.difference_update(answers)
        self._was_answered = self._was_answered or bool(answers)
        if (
            not answers
            and failures
            and all(isinstance(each, _REFUSALS) for each in failures.values())
        ):
            raise next(iter(failures.values()))
        unanswered = {endpoint: each.reason or "refused" for endpoint, each in failures.items()}
        known_before = self.topology
        if self.epochs.value > known_before.newest_epoch:
            # an answer named this epoch and not its master: no master may claim it
            known_before = replace(known_before, newest_epoch=self.epochs.value, newest_of="")
        self.topology = topology = merge_answers(
            answers, tuple(endpoints), known_before, unanswered, self._given
        )
        if not self._never_heard:
            self._given.update(
                node.endpoint for node in topology.nodes if node.endpoint and not node.contradiction
            )
        if known_before.nodes and not fits(topology.origin, known_before.origin):
            self._leave_cluster(answers)
        self.epochs.value = topology.newest_epoch
        self._topology_at = time.monotonic()
        master = topology.authority is not None
        self._outages.looked(master=master, reason=topology.asked_text())
        if master and self._never_heard and self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="tandemlog-listen")
        if self._outages.away and self._outages.watched and self._watcher is None:
            self._watcher = asyncio.create_task(self._watch_outage(), name="tandemlog-outage")
        return self.topology

    def _leave_cluster(self, answers: Answers) -> None:
        """Another cluster is believed from now on: its epochs are not compared with those before,
        and what is still answered by nodes of the one before counts for nothing."""
        logger.warning("another cluster is believed now: %s", self.topology.asked_text())
        self.epochs = NewestEpoch()
        self._master = None
        for node in list(self._nodes.values()):
            self._retire(node)
        self._nodes.clear()
        for endpoint, answer in answers.items():
            self.node(endpoint).data.offered(answer.data_port, answer.data_key)

    async def _listen(self) -> None:
        """Until each seed has said once what it is: the one that was silent may be the cluster, and
        the one that was heard a stranger."""
        wait_s = AGAIN_S
        while self._never_heard:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, AGAIN_MOST_S)
            asked = [self._describe(endpoint) for endpoint in sorted(self._never_heard)]
            answers = await asyncio.gather(*asked)
            if not all(isinstance(each, TandemlogError) for each in answers):
                with contextlib.suppress(TandemlogError):
                    await self.refresh(patient=True)
        self._listener = None

    async def _watch_outage(self) -> None:
        """Asks on while the cluster is away: a client that does nothing would not hear of its
        return."""
        while self._outages.away and not self._closed:
            await asyncio.sleep(AWAY_S)
            with contextlib.suppress(TandemlogError):
                await self.refresh()
        self._watcher = None

    async def _describe_all(
        self, endpoints: dict[str, None]
    ) -> tuple[dict[str, admin_pb2.DescribeClusterResponse], dict[str, TandemlogError]]:
        """The responses by endpoint, and for the others why there is none; endpoints
        that the responses name are asked as well. Once a node has responded the others get only a
        short time, so that a dead host does not delay the caller; a shorter one once it is settled
        who the master is."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.options.discovery_timeout_ms / 1000
        origin_before = None if self._patient else self.topology.origin

        def describe(endpoint: str) -> "asyncio.Task[_Described]":
            return loop.create_task(self._describe(endpoint), name="tandemlog-describe")

        tasks = {describe(endpoint): endpoint for endpoint in endpoints}
        answers: dict[str, admin_pb2.DescribeClusterResponse] = {}
        failures: dict[str, TandemlogError] = {}
        try:
            while tasks and (wait_s := deadline - loop.time()) > 0:
                done, _ = await asyncio.wait(
                    tasks, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    endpoint, answer = tasks.pop(task), task.result()
                    if isinstance(answer, TandemlogError):
                        failures[endpoint] = answer
                        continue
                    answers[endpoint] = answer
                    for other in _named_by(answer):
                        if other not in endpoints and not _reached(answer, other):
                            endpoints[other] = None
                            tasks[describe(other)] = other
                    deadline = min(deadline, loop.time() + OTHERS_S)
                all_given = all(each in answers or each in failures for each in self.seeds)
                if any(
                    is_settled(each, origin_before, all_given=all_given)
                    for each in answers.values()
                ):
                    deadline = min(deadline, loop.time() + SETTLED_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for endpoint in tasks.values():
            late = "no answer in time"
            failures[endpoint] = NodeUnavailableError(f"{endpoint}: {late}", reason=late)
        return answers, failures

    async def _describe(self, endpoint: str) -> "_Described":
        request = admin_pb2.DescribeClusterRequest()
        try:
            node = self.node(endpoint)
            answer = await node.ask(
                node.admin.DescribeCluster, request, self.options.discovery_timeout_ms
            )
        except TandemlogError as error:
            logger.debug("no description of the cluster: %s", error)
            return error
        node.data.offered(answer.data_port, answer.data_key)
        return answer


_Described = admin_pb2.DescribeClusterResponse | TandemlogError

_REFUSALS = (AuthenticationError, ForkedClientError, PermissionDeniedError, SecurityError)
"""Where all nodes answer so, to ask again later is of no use."""


def _named_by(answer: admin_pb2.DescribeClusterResponse) -> Iterable[str]:
    return [node.endpoint for node in answer.nodes if node.endpoint]


def _reached(answer: admin_pb2.DescribeClusterResponse, endpoint: str) -> bool:
    """Whether `endpoint` is the answering node itself, which was reached under another name."""
    return any(
        node.endpoint == endpoint and node.node_id == answer.answered_by for node in answer.nodes
    )


def is_retryable(error: BaseException) -> bool:
    return isinstance(error, TandemlogError) and error.retryable
