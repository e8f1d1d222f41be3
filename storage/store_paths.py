"""The paths of a store under its root: RocketMQ's names, and tandemlog's own in a separate folder.

<root>/commitlog/  consumequeue/<topic>/<queue id>/  index/
       checkpoint  abort  lock  epochFileCheckpoint
       config/topics.json  subscriptionGroup.json  consumerOffset.json
       tandemlog/          ours; RocketMQ does not look into it
"""

from pathlib import Path


class StorePaths:
    """The paths of the store at `root`; nothing is touched."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commit_log = root / "commitlog"
        self.queues = root / "consumequeue"
        self.index = root / "index"
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"
        self.lock = root / "lock"
        self.epochs = root / "epochFileCheckpoint"
        self.config = root / "config"
        self.topics = self.config / "topics.json"
        self.groups = self.config / "subscriptionGroup.json"
        self.consumer_offsets = self.config / "consumerOffset.json"
        self.group_members = self.config / "groupMembers.json"
        self.own = root / "tandemlog"
        self.producers = self.own / "producers"
        self.folds = self.own / "folds"
        self.recovery_point = self.own / "recovery.json"
        self.session = self.own / "session.json"
        self.fsync_flag = self.own / "fsync-failed"
        self.reserve = self.own / "reserve"
        self.set_aside = self.own / "set-aside"
        self.queue_begins = self.own / "queue-begins.json"
        self.producer_begins = self.own / "producers-begin"
        self.log_identity = self.own / "log-identity.json"
        self.seen_time = self.own / "seen-time.json"
        self.time_steps = self.own / "time-steps.json"
        self.mend_note = self.own / "mended.json"
        self.scrub = self.own / "scrub.json"
        self.index_state = self.own / "index.json"
        self.restored = self.own / "restored.json"
