"""The members of consumer groups: `config/groupMembers.json`, a table of tandemlog's own.

    "groups": {"<group>": {"epoch": n, "members": [...]}, ...}
    "locks": {"<group>": {"<topic>": {"<queue id>": "<client>", ...}, ...}, ...}

RocketMQ keeps both in memory, and ignores this file. The node's groups, and its door for RocketMQ's
clients, know what a row means; here it is durable, and travels to the slaves as the other tables
do.
"""

from collections.abc import Callable, Mapping

from .json_file import Json, JsonTable, table

_GROUPS = "groups"
_LOCKS = "locks"


class GroupMembers(JsonTable[None]):
    """See the module. Any thread may call."""

    def rows(self) -> Json:
        """By group."""
        return table(self._file.document, _GROUPS)

    def lock_rows(self) -> Json:
        """Which client had which queue locked, by group."""
        return table(self._file.document, _LOCKS)

    def update(
        self, rows: Mapping[str, object | None], now_ms: int, allowed: Callable[[], bool]
    ) -> bool:
        """Replace these groups' rows (None: drop it), durably. False, and nothing is changed, if
        that is not `allowed` any more: a slave has the table of its master. Raises DiskFullError or
        StoreReadOnlyError, and changes nothing."""
        return self._update(_GROUPS, rows, now_ms, allowed)

    def update_locks(
        self, rows: Mapping[str, object | None], now_ms: int, allowed: Callable[[], bool]
    ) -> bool:
        """The same for the locks; rows that are there already are not written again."""
        return self._update(_LOCKS, rows, now_ms, allowed, known=True)

    def _update(
        self,
        name: str,
        rows: Mapping[str, object | None],
        now_ms: int,
        allowed: Callable[[], bool],
        *,
        known: bool = False,
    ) -> bool:
        with self._lock:
            if not allowed():
                return False
            before = table(self._file.document, name)
            changed = {key: row for key, row in {**before, **rows}.items() if row is not None}
            if known and changed == before:
                return True
            document = self._file.with_next_version(now_ms)
            document[name] = changed
            self._file.replace(document)
            return True

    def _decode(self, document: Json) -> None:
        """The document itself is read."""

    def _publish(self, rows: None) -> None: ...
