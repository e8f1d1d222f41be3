"""The paths of a store under its root: RocketMQ's names, and tandemlog's own in a separate folder.

<root>/commitlog/  consumequeue/<topic>/<queue id>/  index/
       checkpoint  abort  lock  epochFileCheckpoint
       config/topics.json  subscriptionGroup.json  consumerOffset.json
       tandemlog/          ours; RocketMQ does not look into it
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class StorePaths:
    """The paths of the store at `root`; nothing is touched."""

    root: Path

    @property
    def commit_log(self) -> Path:
        return self.root / "commitlog"

    @property
    def queues(self) -> Path:
        return self.root / "consumequeue"

    @property
    def index(self) -> Path:
        return self.root / "index"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def abort(self) -> Path:
        return self.root / "abort"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def epochs(self) -> Path:
        return self.root / "epochFileCheckpoint"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def topics(self) -> Path:
        return self.config / "topics.json"

    @property
    def groups(self) -> Path:
        return self.config / "subscriptionGroup.json"

    @property
    def consumer_offsets(self) -> Path:
        return self.config / "consumerOffset.json"

    @property
    def group_members(self) -> Path:
        return self.config / "groupMembers.json"

    @property
    def own(self) -> Path:
        return self.root / "tandemlog"

    @property
    def producers(self) -> Path:
        return self.own / "producers"

    @property
    def recovery_point(self) -> Path:
        return self.own / "recovery.json"

    @property
    def session(self) -> Path:
        return self.own / "session.json"

    @property
    def fsync_flag(self) -> Path:
        return self.own / "fsync-failed"

    @property
    def reserve(self) -> Path:
        return self.own / "reserve"

    @property
    def set_aside(self) -> Path:
        return self.own / "set-aside"

    @property
    def queue_begins(self) -> Path:
        return self.own / "queue-begins.json"

    @property
    def producer_begins(self) -> Path:
        return self.own / "producers-begin"

    @property
    def log_identity(self) -> Path:
        return self.own / "log-identity.json"

    @property
    def seen_time(self) -> Path:
        return self.own / "seen-time.json"

    @property
    def time_steps(self) -> Path:
        return self.own / "time-steps.json"

    @property
    def index_state(self) -> Path:
        return self.own / "index.json"
