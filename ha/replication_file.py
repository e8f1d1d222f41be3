"""The file `tandemlog/replication.json` of a store: its HaState, replaced atomically and fsynced.

RocketMQ does not look into that folder. A store without the file is new to this cluster: it gets
the node's identity and a fresh incarnation. If its log was restored from an archive, the node
has accepted the highest epoch of the log before the cut, because readers have seen that one. A
store that belongs to another node or cluster is refused, because its acknowledgements would be
counted under a wrong name.
"""

import uuid
from pathlib import Path

from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.disk.small_files import read_small, write_small
from tandemlog_server.storage.disk_errors import refusing
from tandemlog_server.storage.state_files.restored import RestoredFile
from tandemlog_server.storage.store_paths import StorePaths

from .config import HaConfig, Role
from .errors import StateFileError
from .state import HaState, decode_state, encode_state

FILE_NAME = "replication.json"


class StateFile:
    """The state of the store in `directory`. One thread calls."""

    def __init__(self, directory: Path, files: FileSystem) -> None:
        paths = StorePaths(directory)
        self.path = paths.own / FILE_NAME
        self._restored = paths.restored
        self._files = files

    def load(self, config: HaConfig) -> HaState:
        """The state. If there is no file yet, a new state, durable on return.

        Raises StateFileError if it cannot be read or names another cluster or node.
        """
        state = self.check(config)
        if state is None:
            restored = RestoredFile(self._restored, self._files).load()
            newest = 0 if restored is None else restored.newest_epoch
            state = HaState(config.cluster_id, config.node_id, new_incarnation(), newest)
            self.save(state)
        return state

    def check(self, config: HaConfig) -> HaState | None:
        """As `load`, but None if there is no file. Nothing is written."""
        data = read_small(self._files, self.path)
        if data is None:
            return None
        try:
            state = decode_state(data)
        except StateFileError as error:
            raise StateFileError(f"{self.path}: {error}") from error
        for name, stored, wanted in (
            ("cluster", state.cluster_id, config.cluster_id),
            ("node", state.node_id, config.node_id),
        ):
            if stored != wanted:
                raise StateFileError(
                    f"{self.path}: this store belongs to {name} {stored!r}, but the configuration "
                    f"says {wanted!r}: correct the configuration, or delete the file to make this "
                    "node a new member"
                )
        return state

    def check_role(self, config: HaConfig) -> None:
        """Raises StateFileError if the store belongs to a cluster that elects its master, and
        `config` gives this node its role: it would lead beside the master that is elected, or
        follow one that was not elected. Nothing is written."""
        state = self.check(config)
        if state is None or not state.cluster_uuid or config.role is Role.ELECTED:
            return
        raise StateFileError(
            f"{self.path}: this store belongs to a cluster that elects its master (cluster_uuid "
            f"{state.cluster_uuid}), but the configuration names no coordinator, and the role "
            f"would be {config.role.value}: put coordinator.endpoints back (or "
            "TANDEMLOG_COORDINATOR__ENDPOINTS), and leave role, master and follow out. To end the "
            "elections of this cluster, see docs/operations.md, Leave the elections"
        )

    def save(self, state: HaState) -> None:
        """Durable on return. Raises DiskFullError or StoreReadOnlyError, and changes nothing."""
        with refusing(f"{self.path} cannot be written"):
            write_small(self._files, self.path, encode_state(state))


def new_incarnation() -> str:
    """A name that no other disk has had."""
    return uuid.uuid4().hex
