"""The world of stores, whose disks also turn bits below what is durable, and a scrub beside it all.

    rot    a byte of the log of one node that is up is turned; its scrub goes through the log, with
           crashes, power cuts, full disks and calls that fail in the middle of the mending
    then   the byte is right again as soon as the node is up and another one has the block

At most one byte is wrong at a time, so that the bytes that it should be mended to are known. If no
other node that is up has the block, the byte is turned back by hand, so that the world continues.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TypeVar

from fakes.scrubbed_trio import StorePeer
from fakes.stores import DIRECTORY
from sim.ha_nodes import ViolationError
from sim.store_nodes import CONFIG, StoreNode
from sim.store_world import StoreWorld, some_settings
from tandemlog_server.storage.scrub.block_answers import BlockAnswer, BlockQuestion
from tandemlog_server.storage.scrub.scrubbed_store import scrub_limit
from tandemlog_server.storage.scrub.scrubber import PeerError, Scrubber

STEPS_A_ROUND = 400
BLOCK_AT_MOST = CONFIG.commit_log_file_size
Said = TypeVar("Said")
TRIES = 3


@dataclass
class Rot:
    """A byte of a node's log: at log `offset` it was `right`."""

    node: StoreNode
    offset: int
    right: int
    tries: int = 0

    def path(self, file_size: int) -> Path:
        base = self.offset - self.offset % file_size
        return DIRECTORY / "commitlog" / f"{base:020d}"


class Other:
    """Another node of the world, which may die while it is asked."""

    def __init__(self, world: "ScrubWorld", node: StoreNode) -> None:
        self._world = world
        self._node = node

    @property
    def name(self) -> str:
        return self._node.name

    def ask(self, question: BlockQuestion) -> BlockAnswer:
        return self._of(lambda peer: peer.ask(question))

    def fetch(self, start: int, end: int) -> bytes:
        return self._of(lambda peer: peer.fetch(start, end))

    def _of(self, call: Callable[[StorePeer], Said]) -> Said:
        node, said = self._node, list[Said]()
        if node.store is None:
            raise PeerError(f"{node.name} is down")
        store = node.store
        with self._world.on(node):
            said.append(call(StorePeer(node.name, store)))
        if not said:
            raise PeerError(f"{node.name} does not answer")
        return said[0]


class ScrubWorld(StoreWorld):
    """See the module. `mends`: how likely the scrub has a round at a step."""

    mends = 1.0

    def __init__(self, seed: int) -> None:
        size = Random(f"scrub size of {seed}").choice((2, 3, 3))
        super().__init__(seed, replace(some_settings(seed, size), property_crc=True), size)
        self.wrong: Rot | None = None

    def make_events(self, chosen: Random) -> list[tuple[float, Callable[[], None]]]:
        return [*super().make_events(chosen), (12.0, self.turn_a_byte)]

    def step(self) -> None:
        if self.wrong is not None and self.is_time_to_mend():
            self.mend()
        super().step()

    def heal(self) -> None:
        for node in self.nodes.values():
            node.files.empty()
            node.files.die_in = node.files.fail_in = -1
        while self.wrong is not None:
            if self.wrong.node.store is None:
                self.start(self.wrong.node)
            self.mend()
        super().heal()

    def rot(self) -> None:
        if self.wrong is None:
            super().rot()

    def ask(self) -> None:
        if self.wrong is None:
            super().ask()

    def acknowledge(self, node: StoreNode) -> None:
        """Later, while a byte of its log is wrong: what is acknowledged is looked for there."""
        if self.wrong is None or self.wrong.node is not node:
            super().acknowledge(node)

    # --- rot, and the scrub

    def turn_a_byte(self) -> None:
        node = self.any_node()
        if self.wrong is not None or node.store is None:
            return
        self.task(node, "checkpoint")
        store = node.store
        if store is None or store.failure is not None:
            return
        begin, end = store.log.min_offset, min(scrub_limit(store), self.noted(node))
        if begin >= end:
            return
        offset = self.rng.randrange(begin, end)
        wrong = Rot(node, offset, 0)
        path = wrong.path(store.log.file_size)
        data = node.files.peek(path)
        assert data is not None
        position = offset % store.log.file_size
        wrong.right = data[position]
        node.files.flip(path, position, 1 << self.rng.randrange(8))
        self.note(f"{node.name}: byte {offset} turns")
        self.wrong = wrong
        for other in self.nodes.values():
            other.may_hear_damage = True
        if self.rng.random() < 0.6:
            node.files.die_in = self.rng.randint(0, 120)
        if self.is_time_to_mend():
            self.mend()

    def is_time_to_mend(self) -> bool:
        return self.mends >= 1.0 or self.rng.random() < self.mends

    def noted(self, node: StoreNode) -> int:
        """What an open takes for durable: above it, a bad record is the end of the log."""
        assert node.store is not None
        return node.store._parts.recovery_point.dispatched

    def mend(self) -> None:
        """A round of the scrub of the node whose disk is wrong."""
        wrong = self.wrong
        assert wrong is not None
        node = wrong.node
        if node.store is None:
            return
        with self.on(node):
            self.round_of(node)
        self.look_at(wrong)

    def round_of(self, node: StoreNode) -> None:
        store = node.store
        assert store is not None
        others = [
            Other(self, other)
            for other in self.nodes.values()
            if other is not node and other.store is not None
        ]
        scrubber = Scrubber(
            store, lambda: others, DIRECTORY / "tandemlog" / "scrub.json",
            bytes_per_s=1 << 30, interval_ms=1,
        )  # fmt: skip
        scrubber.begin_round()
        for _ in range(STEPS_A_ROUND):
            if scrubber.step() >= 1 or store.failure is not None:
                break
        with contextlib.suppress(OSError):
            scrubber.close()
        for _ in range(scrubber.counts.mended):
            self.count("mended")
        store.reput.run_to()

    def look_at(self, wrong: Rot) -> None:
        """Is it right again, or gone, or can no node help?"""
        node = wrong.node
        if node.store is None:
            return  # it died: with the power, the file of before may come back
        file_size = self.settings.commit_log_file_size
        data = node.files.peek(wrong.path(file_size))
        position = wrong.offset % file_size
        if data is None or data[position] == wrong.right:
            self.wrong = None
            return
        if node.store.failure is not None:
            return
        if not node.store.log.min_offset <= wrong.offset < node.store.log.wrote.value:
            self.wrong = None
            return
        wrong.tries += 1
        if node.files.full or node.files.fail_in >= 0:
            return
        if self.helped(wrong) and wrong.tries >= TRIES:
            raise ViolationError(f"{node.name}: byte {wrong.offset} is not mended")
        if not self.helped(wrong) or wrong.tries >= TRIES:
            self.note(f"{node.name}: byte {wrong.offset} is turned back by hand")
            self.count("by hand")
            self.put_right(wrong, data)

    def put_right(self, wrong: Rot, data: bytes) -> None:
        """No node has it; `data` is the file with the wrong byte."""
        file_size = self.settings.commit_log_file_size
        position = wrong.offset % file_size
        wrong.node.files.flip(wrong.path(file_size), position, data[position] ^ wrong.right)
        self.wrong = None
        # what dispatch had skipped meanwhile is missing in queues and index
        with self.on(wrong.node):
            self.round_of(wrong.node)

    def helped(self, wrong: Rot) -> bool:
        """Whether another node that is up has the whole block, and the same log up to its end."""
        mine = wrong.node.store
        assert mine is not None
        return any(
            other.store is not None
            and other.store.log.min_offset <= mine.log.min_offset
            and scrub_limit(other.store) > wrong.offset + BLOCK_AT_MOST
            and mine.log_identity.history.cut_against(other.store.log_identity.history)
            > wrong.offset + BLOCK_AT_MOST
            for other in self.nodes.values()
            if other is not wrong.node
        )
