"""Rules of the archive that are switched off, one at a time: a seed must show each."""

from dataclasses import replace
from typing import Any

from tandemlog.archive.errors import ArchiveError
from tandemlog.format.archive.branches import Continue
from tandemlog.format.archive.manifest import Manifest
from tandemlog.format.files.log_history import LogHistory
from tandemlog_server.node.archive import archive_worker
from tandemlog_server.node.archive.archive_worker import ArchiveWorker
from tandemlog_server.storage.archiving import archiver
from tandemlog_server.storage.archiving.actions import LogView
from tandemlog_server.storage.archiving.archiver import Archiver
from tandemlog_server.storage.archiving.log_segments import log_view
from tandemlog_server.storage.message_store import MessageStore

Patch = tuple[Any, str, Any]
REAL_MANIFEST = Archiver._manifest


def unanswered_is_done(worker: ArchiveWorker, key: str, content: bytes | memoryview) -> None:
    try:
        worker._objects.put(key, content)
    except ArchiveError:
        return


def all_that_is_written(
    store: MessageStore, tables: tuple[int, ...], *, is_chosen: bool
) -> LogView:
    view = log_view(store, tables, is_chosen=is_chosen)
    return replace(view, end=store.log.wrote.value)


def uncut(
    manifest: Manifest | None, log: LogHistory, begin: int, confirmed: int, file_size: int
) -> Continue:
    if manifest is None:
        return Continue(begin)
    return Continue(max(begin, manifest.end), manifest)


def of_the_archived_part(found: Archiver) -> Manifest:
    manifest = REAL_MANIFEST(found)
    terms = tuple(each for each in manifest.history.terms if each.start_offset < manifest.end)
    return replace(manifest, history=LogHistory(manifest.history.log_id, terms))


MUTATIONS: dict[str, list[Patch]] = {
    "a put without an answer counts as done": [(ArchiveWorker, "_put", unanswered_is_done)],
    "what is not confirmed is archived": [(archive_worker, "log_view", all_that_is_written)],
    "a log that was cut continues at the archive's end": [(archiver, "continuation", uncut)],
    "a cut is not noticed before the manifest": [(Archiver, "_is_cut", lambda *_: False)],
    "a manifest has the epoch of its last byte": [(Archiver, "_manifest", of_the_archived_part)],
    "no prologue is taken": [(Archiver, "_has_prologue", lambda _: True)],
}
