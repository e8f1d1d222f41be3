"""The members of consumer groups: `config/groupMembers.json`, a table of tandemlog's own.

    "groups": {"<group>": {"epoch": n, "members": [...]}, ...}

RocketMQ keeps members in memory, and ignores this file. The node's groups know what a row means;
here it is durable, and travels to the slaves as the other tables do.
"""

from collections.abc import Callable, Mapping

from .json_file import Json, JsonTable, table

_GROUPS = "groups"


class GroupMembers(JsonTable[None]):
    """See the module. Any thread may call."""

    def rows(self) -> Json:
        """By group."""
        return table(self._file.document, _GROUPS)

    def update(
        self, rows: Mapping[str, object | None], now_ms: int, allowed: Callable[[], bool]
    ) -> bool:
        """Replace these groups' rows (None: drop it), durably. False, and nothing is changed, if
        that is not `allowed` any more: a slave has the table of its master. Raises DiskFullError or
        StoreReadOnlyError, and changes nothing."""
        with self._lock:
            if not allowed():
                return False
            document = self._file.with_next_version(now_ms)
            changed = {**table(self._file.document, _GROUPS), **rows}
            document[_GROUPS] = {name: row for name, row in changed.items() if row is not None}
            self._file.replace(document)
            return True

    def _decode(self, document: Json) -> None:
        """The document itself is read."""

    def _publish(self, rows: None) -> None: ...
