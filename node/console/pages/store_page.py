"""The store of this node, from its memory: no file is read for it, and no other node asked.

    any caller       positions, counters, faults     as DescribeCluster and Stats tell them
    administrators   files, settings, archive, scrub  as FetchLogState, DescribeSettings and
                                                     DescribeScrub tell them

Of a caller who may not administer, `details` is null, and the page says what is missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tandemlog.cluster.scrub_status import scrub_of
from tandemlog.errors import PermissionDeniedError
from tandemlog.format.files.index_layout import index_file_size
from tandemlog.format.files.queue_unit import UNIT_SIZE
from tandemlog_server.storage.index.index_service import IndexService
from tandemlog_server.storage.message_store import MessageStore

from ...access.identities import Right
from ...archive.archive_service import ArchiveService
from ..sampler import Sampler
from ..served_node import ServedNode
from ..visit import MAX_ROWS, Json, Needs, Route, Visit

ROWS = 100
DETAILS = "log files, settings, archive and scrub need the right to administer"


class StorePage:
    """See the module."""

    def __init__(self, node: ServedNode, sampler: Sampler) -> None:
        self._node = node
        self._sampler = sampler

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/api/store", Needs.CALLER, self._store),
            Route("GET", "/api/store/log-files", Needs.CALLER, self._log_files),
            Route("GET", "/api/store/index-files", Needs.CALLER, self._index_files),
            Route("POST", "/api/store/scrub", Needs.CHANGE, self._begin_scrub),
        )

    async def _store(self, visit: Visit) -> Json:
        node, store = self._node, self._node.store
        own = node.config.node_id
        faults = [text for each in node.members() if each.node_id == own for text in each.faults]
        return {
            "node": own,
            "now_ms": store.clock.now_ms(),
            "positions": _positions(store),
            "disk": asdict(await self._sampler.disk()),
            "faults": faults,
            "details": self._details() if visit.admin else None,
            "missing": "" if visit.admin else DETAILS,
        }

    def _details(self) -> Json:
        node, store = self._node, self._node.store
        settings, log, index = node.config.store, store.log, store.index
        return {
            "directory": str(store.directory),
            "read_only_because": store.read_only_reason,
            "log": {
                "files": len(log.files),
                "file_size": log.file_size,
                "file_bytes": len(log.files) * log.file_size,
                "min_offset": log.min_offset,
                "unreadable": len(log.unreadable),
            },
            "queues": {
                "queues": store.queues.count,
                "numbered": int(store.queues.ends().sum()),
                "unit_bytes": UNIT_SIZE,
                "file_size": store.queues.file_size,
                "damaged": len(store.queues.damaged),
                "next_offset": store.queues.next_offset,
            },
            "index": None if index is None else _index(index),
            "settings": {
                "flush": settings.flush.value,
                "flush_interval_ms": settings.flush_interval_ms,
                "buffered": settings.buffered,
                "max_message_size": settings.max_message_size,
                "index_tags": settings.index_tags,
            },
            "retention": asdict(settings.retention),
            "retention_waits_for": store.retention_waits_for,
            "archive": _archive(node.archive.service),
            "scrub": self._scrub(),
        }

    def _scrub(self) -> Json:
        """`open`: how many places could not be settled; `open_blocks` has the first of them."""
        found = scrub_of(self._node.scrub.description())
        shown = replace(found, open_blocks=found.open_blocks[:MAX_ROWS])
        return {**asdict(shown), "open": len(found.open_blocks)}

    async def _log_files(self, visit: Visit) -> Json:
        """The newest first, from row `first` on."""
        _require_admin(visit, "the files of the log")
        first = visit.number("first", 0)
        log = self._node.store.log
        files, end = log.files, log.wrote.value
        newest = len(files) - first
        return {
            "files": [
                {
                    "name": each.path.name,
                    "size_bytes": each.size,
                    "used_bytes": max(0, min(end, each.end) - each.base),
                    "first_offset": each.base,
                    "end_offset": min(end, each.end),
                }
                for each in reversed(files[max(0, newest - ROWS) : max(0, newest)])
            ],
            "first": first,
            "rows": ROWS,
            "total": len(files),
        }

    async def _index_files(self, visit: Visit) -> Json:
        """The newest first, from row `first` on."""
        _require_admin(visit, "the files of the index")
        first, index = visit.number("first", 0), self._node.store.index
        files = () if index is None else index.files
        newest = len(files) - first
        return {
            "files": [
                {
                    "name": each.name,
                    "entries": max(each.header.next_entry - 1, 0),
                    "room": each.room,
                    "begin_ms": each.header.begin_timestamp,
                    "end_ms": each.header.end_timestamp,
                    "first_offset": each.header.begin_physical_offset,
                    "end_offset": each.header.end_physical_offset,
                }
                for each in reversed(files[max(0, newest - ROWS) : max(0, newest)])
            ],
            "first": first,
            "rows": ROWS,
            "total": len(files),
        }

    async def _begin_scrub(self, visit: Visit) -> Json:
        """A round through this node's log from its begin, now."""
        node_id = self._node.config.node_id
        visit.confirmed(node_id)
        async with visit.clients.admin() as admin:
            found = await admin.begin_scrub(node_id)
        return {"node": found.node_id, "bytes": found.log_end - found.log_begin}


def _require_admin(visit: Visit, what: str) -> None:
    """Raises PermissionDeniedError."""
    if not visit.admin:
        raise PermissionDeniedError(f"{what}: {DETAILS}", field=Right.ADMIN.value)


def _positions(store: MessageStore) -> Mapping[str, int]:
    """Log offsets, the later ones read first: so none is beyond the one that it follows."""
    reputed, confirmed = store.reputed.value, store.confirmed.value
    flushed, committed = store.log.flushed.value, store.log.committed.value
    return {
        "min_offset": store.log.min_offset,
        "wrote_offset": store.log.wrote.value,
        "committed_offset": committed,
        "flushed_offset": flushed,
        "confirm_offset": confirmed,
        "reput_offset": reputed,
    }


def _index(index: IndexService) -> Json:
    files = index.files
    return {
        "files": len(files),
        "file_bytes": len(files) * index_file_size(index.slots, index.entries),
        "entries": sum(max(each.header.next_entry - 1, 0) for each in files),
        "begin_ms": files[0].header.begin_timestamp if files else 0,
        "end_ms": files[-1].header.end_timestamp if files else 0,
        "next_offset": index.next_offset,
        "stopped": "" if index.stopped is None else str(index.stopped),
    }


def _archive(service: ArchiveService | None) -> dict[str, Any] | None:
    """What this node knows of the archive; `newest` is the last manifest that it has seen."""
    if service is None:
        return None
    archiver, numbers = service.archiver, service.statistics()
    newest = None
    if archiver.newest is not None:
        manifest = archiver.newest[1]
        newest = {
            "begin": manifest.begin,
            "end": manifest.end,
            "segments": len(manifest.segments),
            "states": len(manifest.states),
            "log_bytes": manifest.size,
            "spans": len(manifest.spans()),
            "written_ms": manifest.written_ms,
            "archiver": manifest.archiver,
        }
    return {
        "url": service.url,
        "working": archiver.is_working,
        "waits_for": archiver.waits_for,
        "archived_end": archiver.archived_end,
        "behind_bytes": int(numbers["archive_behind_bytes"]),
        "put_bytes": int(numbers["archive_put_bytes_total"]),
        "keep_from": service.keep_from(),
        "faults": service.faults(),
        "newest": newest,
    }
