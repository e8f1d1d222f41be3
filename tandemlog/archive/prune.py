"""What an archive no longer has to keep: first out of the newest manifest, then, later, out of the
place where it is.

    [0 ─── 8192) [8192 ─── 16384) [16384 ─── 20000)      keep from 18000
                                  ├─────────────────     the start of a file, with a prologue

A log begins where a commit log file does, and what came before it is in the prologue of that place.
So the archive begins with the last such place at or before the log offset asked: without one,
delayed messages, open transactions and the numbers of idle queues would be lost.

Objects go when no manifest names them any more and they are older than the grace time, manifests
when another one has counted in their place for as long: a reader or an archiver that has begun with
an older manifest finds what it names, however old that was. So what a manifest drops now is deleted
by a later run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from ..format.archive.branches import newest_first
from ..format.archive.manifest import Manifest, encode_manifest
from ..format.archive.object_name import INDEX, LOG, MANIFESTS, STATE
from .archive_reader import ArchiveReader, load_manifest
from .errors import ObjectMissingError
from .object_store import ObjectStore, StoredObject


@dataclass(frozen=True, slots=True)
class PruneReport:
    """`begin`: where the archive begins now, `begun` before (log offsets); what is deleted, or
    would be."""

    begun: int
    begin: int
    manifests: int
    objects: int
    size: int


def pruned(manifest: Manifest, keep_from: int) -> Manifest:
    """Without what is not needed for a log from `keep_from` on; the same if there is no such
    place."""
    places = [
        each.name.log_offset
        for each in manifest.states
        if each.has_prologue and each.name.log_offset % manifest.file_size == 0
    ]
    inside = [at for at in places if manifest.begin < at <= min(keep_from, manifest.end - 1)]
    if not inside:
        return manifest
    begin = max(inside)
    below = [each for each in manifest.states if each.name.log_offset < begin]
    # the tables below the new begin are those of the log from there on until there are newer ones
    kept = max(below, key=lambda each: (each.name.log_offset, each.at_ms), default=None)
    return replace(
        manifest,
        segments=tuple(each for each in manifest.segments if each.start >= begin),
        states=tuple(
            each for each in manifest.states if each.name.log_offset >= begin or each == kept
        ),
    )


def prune(
    objects: ObjectStore,
    keep_from: int,
    *,
    now_ms: int,
    grace_ms: int,
    dry_run: bool = False,
) -> PruneReport:
    """Raises NotArchivedError for an archive without a manifest, ArchiveError."""
    newest = ArchiveReader.open(objects).manifest
    kept = pruned(newest, keep_from)
    listed = newest_first(each.key for each in objects.list(MANIFESTS))
    if kept is not newest:
        kept = replace(kept, revision=newest.revision + 1, written_ms=now_ms)
        name, content = encode_manifest(kept)
        if not dry_run:
            objects.put(name.key, content)
    named = set(kept.keys())
    gone: list[str] = []
    # since when a manifest counts that is newer than the one in the loop: an archiver in a quiet
    # log works on with one that was written long ago
    replaced_ms = inf if kept is newest else now_ms
    for each in listed:
        try:
            manifest = load_manifest(objects, each)
        except ObjectMissingError:
            continue
        if replaced_ms > now_ms - grace_ms:
            named.update(manifest.keys())
        else:
            gone.append(each.key)
        replaced_ms = min(replaced_ms, manifest.written_ms)
    unnamed = [
        each
        for each in _objects(objects)
        if each.key not in named and 0 < each.modified_ms <= now_ms - grace_ms
    ]
    if not dry_run:
        # the manifests first: none names what is deleted
        for key in (*gone, *(each.key for each in unnamed)):
            objects.delete(key)
    return PruneReport(
        newest.begin, kept.begin, len(gone), len(unnamed), sum(each.size for each in unnamed)
    )


def _objects(objects: ObjectStore) -> Iterable[StoredObject]:
    for prefix in (LOG, INDEX, STATE):
        yield from objects.list(prefix)
