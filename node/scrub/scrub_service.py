"""The thread that scrubs a node's log, and what it says of itself.

    loop    members() ◀── asked by the thread, once in LOOK_S ── who else there is
    thread  Scrubber.step ─▶ rest ─▶ step ...                    one block each
               └─ what the nodes cannot settle ─▶ the archive, if there is one

The thread ends with the node, or permanently when the store's disk fails; `fault` says why. How far
it is lies in the store's folder, so a restart continues.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Final

from tandemlog.archive.object_store import shown_url
from tandemlog.archive.open_store import open_object_store
from tandemlog.transport.security_files import SecurityFiles
from tandemlog.v1 import admin_pb2, common_pb2
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.scrub.scrubbed_store import scrub_limit
from tandemlog_server.storage.scrub.scrubber import PeerError, Scrubber
from tandemlog_server.storage.store_paths import StorePaths

from ..settings.node_config import NodeConfig
from .archive_peer import ArchivePeer
from .node_peer import NodePeer

logger = logging.getLogger(__name__)

LOOK_S: Final = 2.0
RETRY_S: Final = 5.0
ANSWER_S: Final = 5.0
STOP_S: Final = 30.0
FAULTS: Final = 4
"""Open blocks that are named in the list of nodes."""

Members = Callable[[], Sequence[common_pb2.NodeStatus]]


class ScrubService:
    """See the module. `members` is called in the loop."""

    def __init__(self, store: MessageStore, config: NodeConfig, members: Members) -> None:
        self._store = store
        self._config = config
        self._members = members
        self._loop = asyncio.get_running_loop()
        self._files = SecurityFiles(config.peer_security())
        self._peers: dict[tuple[str, str], NodePeer] = {}
        self._looked_at = float("-inf")
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.fault = ""
        section, url = config.scrub, config.archive.url
        self._archive = (
            ArchivePeer(
                shown_url(url),
                partial(open_object_store, url),
                property_crc=config.store.property_crc,
            )
            if url
            else None
        )
        self.scrubber = Scrubber(
            store,
            self._others,
            StorePaths(store.directory).scrub,
            bytes_per_s=section.bytes_per_s,
            interval_ms=section.interval_ms,
            wait=self._stopping.wait,
            last_resort=self._archive,
        )

    def start(self) -> None:
        """Scrub from now on, if the settings say so."""
        if not self._config.scrub.on:
            return
        self.scrubber.load()
        self._thread = threading.Thread(target=self._run, name="scrub", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the block under way, or without it if an archive takes too long to answer; not
        to be called in the loop."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def begin(self) -> None:
        """A round from the log's begin, now. Any thread."""
        self.scrubber.begin_round()
        self._wake.set()

    # ---- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                rest_s = self.scrubber.step()
                self.fault = ""
            except (StoreError, OSError) as error:
                self._say(f"the scrub waits: {error}")
                rest_s = RETRY_S
                if self._store.failure is not None:
                    self._say(f"the scrub has stopped: {self._store.failure}")
                    break
            except Exception as error:
                self._say(f"the scrub has stopped: {error!r}")
                logger.exception("scrub")
                break
            if rest_s > 0:
                self._wake.wait(rest_s)
                self._wake.clear()
        try:
            self.scrubber.close()
        except OSError as error:
            logger.warning("scrub: how far it is was not noted: %s", error)
        for peer in self._peers.values():
            peer.close()
        if self._archive is not None:
            self._archive.close()

    def _say(self, fault: str) -> None:
        if fault != self.fault:
            logger.error("%s", fault)
        self.fault = fault

    def _others(self) -> Sequence[NodePeer]:
        now = self._store.clock.monotonic()
        if now >= self._looked_at + LOOK_S:
            self._looked_at = now
            self._look()
        return list(self._peers.values())

    def _look(self) -> None:
        own = self._config.node_id
        wanted = {
            (each.node_id, each.endpoint)
            for each in self._asked_members()
            if each.node_id != own and each.endpoint
        }
        for key in self._peers.keys() - wanted:
            self._peers.pop(key).close()
        for name, endpoint in wanted - self._peers.keys():
            try:
                self._peers[name, endpoint] = NodePeer(
                    name, endpoint, self._config.cluster_id, own, self._files
                )
            except PeerError as error:
                logger.warning("scrub: %s is not asked: %s", name, error)

    def _asked_members(self) -> Sequence[common_pb2.NodeStatus]:
        async def ask() -> Sequence[common_pb2.NodeStatus]:
            return self._members()

        if self._stopping.is_set():
            return ()
        future = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        try:
            return future.result(ANSWER_S)
        except FutureTimeoutError:
            future.cancel()
            return ()

    # ---- what it says

    def faults(self) -> list[str]:
        """For the list of nodes: why it does not work, and what could not be settled."""
        opened = list(self.scrubber.plan.open.values())
        named = [f"scrub: {each.reason}" for each in opened[:FAULTS]]
        if len(opened) > FAULTS:
            named.append(f"scrub: and {len(opened) - FAULTS} more: tandemlog scrub status")
        return ([self.fault] if self.fault else []) + named

    def statistics(self) -> dict[str, float]:
        """By the names of metrics."""
        counts, opened = self.scrubber.counts, list(self.scrubber.plan.open.values())
        progress, now_ms = self.scrubber.plan.progress, self._store.clock.now_ms()
        age_ms = now_ms - progress.began_ms if progress.began_ms else 0
        return {
            "scrub_bytes_total": counts.bytes,
            "scrub_damaged_blocks_total": counts.damaged,
            "scrub_mended_blocks_total": counts.mended,
            "scrub_failed_mendings_total": counts.failed,
            "scrub_rebuilt_queues_total": counts.queues,
            "scrub_mended_index_entries_total": counts.entries,
            "scrub_lost_blocks": sum(each.lost for each in opened),
            "scrub_doubtful_blocks": sum(not each.lost for each in opened),
            "scrub_round_age_seconds": max(age_ms, 0) / 1000,
        }

    def description(self) -> admin_pb2.ScrubResponse:
        """For DescribeScrub."""
        counts, plan = self.scrubber.counts, self.scrubber.plan
        progress = plan.progress
        return admin_pb2.ScrubResponse(
            answered_by=self._config.node_id,
            on=self._config.scrub.on,
            next_offset=progress.next_offset,
            log_begin=self._store.log.min_offset,
            log_end=scrub_limit(self._store),
            round_began_ms=progress.began_ms,
            round_ended_ms=progress.ended_ms,
            rounds=progress.rounds,
            checked_bytes=counts.bytes,
            damaged_blocks=counts.damaged,
            mended_blocks=counts.mended,
            mended_bytes=counts.mended_bytes,
            failed_mendings=counts.failed,
            rebuilt_queues=counts.queues,
            compared_blocks=counts.compared,
            open=[
                admin_pb2.OpenBlock(
                    start=each.start,
                    end=each.end,
                    lost=each.lost,
                    reason=each.reason[:1_000],
                    since_ms=each.since_ms,
                )
                for each in list(plan.open.values())
            ],
            fault=self.fault,
        )
