"""The names of a cluster's keys at the coordinator.

/tandemlog/<cluster>/uuid             made once, with the first record
                     state            the record: the only key that decides anything
                     leader           bound to the leader's lease
                     members/<id>     bound to that node's lease
                     roster/<id>      permanent: starts of the node, or that it was removed
                     confirmed        how far the log was confirmed, by the leader's last renewal
                     settings         paused
                     request          what an operator has asked for
                     history/<epoch>  one for each term, the epoch with leading zeros
"""

from ..coordinator.values import KeyRange, with_prefix

ROOT = "/tandemlog"
EPOCH_DIGITS = 10


class ClusterKeys:
    """The keys of one cluster."""

    def __init__(self, cluster_id: str) -> None:
        self.prefix = f"{ROOT}/{cluster_id}/".encode()
        self.uuid = self.prefix + b"uuid"
        self.state = self.prefix + b"state"
        self.leader = self.prefix + b"leader"
        self.confirmed = self.prefix + b"confirmed"
        self.settings = self.prefix + b"settings"
        self.request = self.prefix + b"request"
        self.members = self.prefix + b"members/"
        self.roster = self.prefix + b"roster/"
        self.history = self.prefix + b"history/"

    @property
    def all(self) -> KeyRange:
        return with_prefix(self.prefix)

    def member(self, node_id: str) -> bytes:
        return self.members + node_id.encode()

    def in_roster(self, node_id: str) -> bytes:
        return self.roster + node_id.encode()

    def term(self, epoch: int) -> bytes:
        return self.history + f"{epoch:0{EPOCH_DIGITS}d}".encode()
