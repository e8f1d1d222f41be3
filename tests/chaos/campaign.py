"""Faults one after the other, on clusters that live for a few minutes each.

    order      from a seed: every kind once in random order, then again; CHAOS_SEED repeats it
    a fault    all in sync ▸ inject ▸ hold ▸ heal ▸ an acknowledged put ▸ all in sync ▸ audit
    a cluster  faults while its time lasts, then the load ends and everything is read back

The random choices inside a fault depend on the seed and the fault's number alone. What the machine
does in between does not repeat: a seed gives the same order, not the same race.
"""

import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from chaos.archive_audit import ArchiveAudit
from chaos.audit import Audit
from chaos.cluster import EMBEDDED, ETCD, HEAL_S, ChaosCluster
from chaos.faults import Fault, Scene, faults_for
from chaos.load import StreamLoad
from chaos.services import Services
from chaos.tally import Played, Tally
from chaos.watchers import Follower, GroupReader, NodeWatcher, Witness
from helpers.running import wait_until

LIFE_S = 300.0


def order(seed: int, kind: str) -> Iterator[Fault]:
    """Without end: all faults of this kind of coordinator in random order, again and again."""
    rng = random.Random(f"{seed} {kind}")
    while True:
        faults = faults_for(kind)
        rng.shuffle(faults)
        yield from faults


class Campaign:
    """`tally` has what came of it."""

    def __init__(self, seed: int) -> None:
        self.tally = Tally(seed)
        self._seed = seed
        self._numbers = itertools.count(1)

    def run(self, seconds: float) -> None:
        """Clusters with both kinds of coordinators in turn, until the time is up or a promise was
        broken. The folder of a cluster that broke one stays. Raises AssertionError if one does not
        heal."""
        deadline = time.monotonic() + seconds
        orders = {kind: order(self._seed, kind) for kind in (EMBEDDED, ETCD)}
        for kind in itertools.cycle(orders):
            left = deadline - time.monotonic()
            if left <= 0 or self.tally.findings:
                return
            folder = Path(tempfile.mkdtemp(prefix="tandemlog-chaos-"))
            print(f"{kind}, {folder}", flush=True)
            # two lives at least, one of each kind
            self.live(folder, kind, min(LIFE_S, seconds / 2, left), orders[kind])
            if not self.tally.findings:
                shutil.rmtree(folder)

    def live(self, folder: Path, kind: str, seconds: float, faults: Iterator[Fault]) -> None:
        """One cluster; no fault begins after that time. Raises AssertionError if it does not
        heal, with the ends of all logs."""
        deadline = time.monotonic() + seconds
        with ChaosCluster(folder, kind) as cluster:
            try:
                self._live(cluster, deadline, faults)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{cluster.tails()}") from None

    def _live(self, cluster: ChaosCluster, deadline: float, faults: Iterator[Fault]) -> None:
        witness = Witness()
        endpoints = cluster.nodes.endpoints
        with ExitStack() as clients:
            load = StreamLoad(endpoints)
            clients.enter_context(load)
            for node in cluster.nodes.nodes:
                clients.enter_context(NodeWatcher(node, witness))
            follower = Follower(endpoints, witness)
            clients.enter_context(follower)
            group = GroupReader(endpoints, witness)
            clients.enter_context(group)
            services = Services(endpoints)
            clients.enter_context(services)
            audit = Audit(cluster, load, witness)
            archive = ArchiveAudit(cluster.archive, cluster.nodes.nodes)
            for fault in faults:
                self.tally.add(self._play(cluster, load, audit, archive, fault))
                if time.monotonic() > deadline:
                    break
            load.stop()
            services.stop()
            wait_until(
                lambda: f"{services.unhandled} jobs to be handled, and delayed messages to come",
                lambda: not services.unhandled and services.arrived(cluster.nodes.nodes),
                HEAL_S,
            )
            self.tally.end(audit.at_the_end())
            self.tally.end(services.check(cluster.nodes.nodes))
            self.tally.count(services.counts())
            self.tally.end(archive.at_the_end(cluster.archive.with_name("restored")))
            self.tally.archived_bytes += archive.compared
            wait_until(
                f"the consumer and the group to get all {audit.count} messages",
                lambda: follower.delivered >= audit.count and group.delivered >= audit.count,
                HEAL_S,
            )

    def _play(
        self,
        cluster: ChaosCluster,
        load: StreamLoad,
        audit: Audit,
        archive: ArchiveAudit,
        fault: Fault,
    ) -> Played:
        number = next(self._numbers)
        print(f"{number:4} {fault.name}", flush=True)
        acknowledged, failed = len(load.acknowledged), len(load.failed)
        scene = Scene(cluster, random.Random(f"{self._seed} {number}"))
        epoch = cluster.epoch()
        began = time.monotonic()
        with fault.inject(scene):
            time.sleep(fault.hold_s(scene))
        cluster.network.heal()
        healed = time.monotonic()
        load.wait_acknowledged(healed, HEAL_S)
        cluster.wait_whole()
        whole = time.monotonic()
        findings = audit.after_fault() + archive.after_fault()
        running = [node.process for node in cluster.nodes.nodes]
        self.tally.usage.sample(each.pid for each in running if each is not None)
        played = Played(
            fault=fault.name,
            coordinator=cluster.kind,
            acknowledged=len(load.acknowledged) - acknowledged,
            failed=len(load.failed) - failed,
            elections=cluster.epoch() - epoch,
            recovery_s=load.gap(began, healed),
            whole_s=whole - healed,
            findings=tuple(findings),
        )
        print(f"     {played.line()}", flush=True)
        return played
