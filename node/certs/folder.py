"""A folder of certificates.

    DIR/ca.crt   ca.key       the authority; the key stays here and signs
    DIR/n1.crt   n1.key       of a node (or a coordinator, or a client) of that name

Keys are readable by their owner alone. A renewed pair is two renames, key first. Between them the
two do not fit each other; nodes and clients that read them then keep the old pair and read again.
"""

import datetime
from collections.abc import Sequence
from pathlib import Path

from ..private_files import PUBLIC, SECRET, sync_folder, write_draft
from .authority import CertificateError, Pair, cluster_of, issue, new_authority, read_authority
from .owners import Owner

AUTHORITY = "ca"


def certificate_file(folder: Path, name: str) -> Path:
    """Of the authority (AUTHORITY) or of an owner."""
    return folder / f"{name}.crt"


def key_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.key"


def make_authority(
    folder: Path, cluster: str, days: float, now: datetime.datetime, *, force: bool = False
) -> Path:
    """Make an authority; returns its certificate's file. Raises CertificateError where there is
    one, or a part of one, unless `force`."""
    there = [
        file
        for file in (certificate_file(folder, AUTHORITY), key_file(folder, AUTHORITY))
        if file.exists()
    ]
    if there and not force:
        raise CertificateError(
            f"{there[0]} exists: a new authority makes every certificate of the old one useless; "
            "give --force if that is what you want"
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return _write(folder, AUTHORITY, new_authority(cluster, days, now))


def authority_in(folder: Path) -> Pair:
    """The authority that is kept in `folder`. Raises CertificateError where there is none."""
    try:
        pair = Pair(
            certificate_file(folder, AUTHORITY).read_bytes(),
            key_file(folder, AUTHORITY).read_bytes(),
        )
    except FileNotFoundError as error:
        raise CertificateError(
            f"{error.filename} does not exist: make an authority first, with `tandemlog certs "
            f"authority {folder}`"
        ) from error
    try:
        read_authority(pair)
    except CertificateError as error:
        raise CertificateError(f"{folder}: {error}") from error
    return pair


def cluster_in(folder: Path) -> str:
    """The cluster whose authority is kept in `folder`. Raises CertificateError."""
    return cluster_of(read_authority(authority_in(folder))[0])


def make_certificate(
    folder: Path,
    owner: Owner,
    hosts: Sequence[str],
    days: float,
    now: datetime.datetime,
    target: Path | None = None,
) -> Path:
    """The file of a new certificate of `owner`, signed by the authority of `folder`; it takes the
    place of an older one. `target`: the folder to write to. Raises CertificateError."""
    if owner.name == AUTHORITY:
        raise CertificateError(f"{AUTHORITY!r} is the authority's name: choose another one")
    pair = issue(authority_in(folder), owner, hosts, days, now)
    target = target or folder
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    return _write(target, owner.name, pair)


def _write(folder: Path, name: str, pair: Pair) -> Path:
    certificate, key = certificate_file(folder, name), key_file(folder, name)
    drafts = [
        (write_draft(key, pair.key, SECRET), key),
        (write_draft(certificate, pair.certificate, PUBLIC), certificate),
    ]
    for draft, target in drafts:
        draft.replace(target)
    sync_folder(folder)
    return certificate
