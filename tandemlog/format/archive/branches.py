"""Which manifest counts, and how a log continues it.

    manifests   4: ├──────────────────┼────▶ 1900        an archiver of the old master
                5: ├──────────────────┤▶ 1400            the new master's, cut at 1300
                                    1300
    chosen      5, up to 1400

Confirmed bytes are one history, so every manifest of a term is a prefix of every longer one of it:
the newest epoch, and of that the longest, says all. Two that are equally long name the same bytes,
one of them in larger segments or with newer tables: the higher revision counts.

A log that was cut after it was archived has a
newer term. Its next manifest ends the old branch at the cut and continues from there.

Histories alone decide, and an id that is not known fits every id: the archiver therefore compares
the checksum of the last archived block with its own log before it continues (`Continue.proof`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..files.log_history import LogHistory
from .manifest import Manifest, SegmentEntry
from .object_name import ManifestName, manifest_of


def newest_first(keys: Iterable[str]) -> list[ManifestName]:
    """The manifests among these keys, as they are to be tried; other keys are left out."""
    found = [name for name in map(manifest_of, keys) if name is not None]
    return sorted(found, reverse=True)


@dataclass(frozen=True, slots=True)
class Continue:
    """The archive continues at `offset` (log offset) of the log.

    base     the manifest so far, without what was cut from the log; None: nothing is archived
    proof    the last segment, whose bytes below `base.end` the log must have; None: there is none
    cut      where the log was cut, if that is below what is archived
    gap      (from, to) of the log that no node has any more
    """

    offset: int
    base: Manifest | None = None
    proof: SegmentEntry | None = None
    cut: int | None = None
    gap: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Behind:
    """The archive is ahead of this log, and rightly: wait, and look again. `reason` for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """The archive is of another log: stop. `reason` for people."""

    reason: str


def continuation(
    manifest: Manifest | None, log: LogHistory, begin: int, confirmed: int, file_size: int
) -> Continue | Behind | Foreign:
    """How an archive with that newest manifest continues a log that has the history `log`, the
    bytes from `begin` up to `confirmed`, and files of `file_size` bytes."""
    if manifest is None:
        return Continue(begin)
    if manifest.file_size != file_size:
        return Foreign(
            f"the archive has commit log files of {manifest.file_size} bytes, this store of "
            f"{file_size}"
        )
    cut = manifest.history.cut_against(log)
    if cut == 0 and log.log_id and manifest.history.log_id not in (0, log.log_id):
        # also below its epoch: a log that waits for another one would wait for ever
        return Foreign("the archive is of another log: the two have no term in common")
    if log.newest[0] < manifest.epoch:
        return Behind(f"the archive has epoch {manifest.epoch}, this log epoch {log.newest[0]}")
    if cut == 0 and manifest.history.terms:
        return _without_a_common_term(manifest, log, begin, confirmed)
    if cut >= manifest.end:
        return _from(manifest, begin, confirmed)
    if log.newest[0] == manifest.epoch:
        return Foreign(
            f"epoch {manifest.epoch} of this log and of the archive are of two masters: they "
            f"differ from {cut} on"
        )
    below = manifest.cut_at(cut)
    found = _from(below, begin, confirmed)
    return replace(found, cut=cut) if isinstance(found, Continue) else found


def _without_a_common_term(
    manifest: Manifest, log: LogHistory, begin: int, confirmed: int
) -> Continue | Behind | Foreign:
    """The oldest terms go with the files that retention deletes, also from the tables of slaves
    that still have those files: such a log may share no term with an archive that is older than its
    first one, and the bytes must prove that it is the same. Else all that is archived was cut."""
    if not log.log_id or log.log_id != manifest.history.log_id:
        return Foreign("the archive is of another log: the two have no term in common")
    oldest = log.terms[0].start_offset if log.terms else 0
    if manifest.end <= oldest:
        return _from(manifest, begin, confirmed)
    if log.newest[0] == manifest.epoch:
        return Foreign(f"epoch {manifest.epoch} of this log and of the archive are of two masters")
    return Continue(begin, cut=0)


def _from(manifest: Manifest, begin: int, confirmed: int) -> Continue | Behind:
    if not manifest.segments:
        return Continue(begin)
    if confirmed < manifest.end:
        return Behind(
            f"the archive ends at {manifest.end}, this log is confirmed up to {confirmed}"
        )
    if begin > manifest.end:
        return Continue(begin, manifest, None, gap=(manifest.end, begin))
    last = manifest.segments[-1]
    return Continue(manifest.end, manifest, last if begin < last.end else None)


def is_cut(old: Manifest, new: Manifest) -> bool:
    """Whether `old` has bytes of the log that `new`, which is chosen before it, has not: of such a
    branch the archive keeps the last manifest, and what that names, until it is pruned."""
    return old.history.cut_against(new.history) < old.end
