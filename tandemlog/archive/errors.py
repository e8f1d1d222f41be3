"""What goes wrong with an archive; each error names the object or the URL, without its secrets."""

from ..errors import TandemlogError, UnavailableError


class ArchiveError(TandemlogError):
    """Base of the errors of an archive."""


class ArchiveUnavailableError(ArchiveError, UnavailableError):
    """The object store gives no answer, or refuses: try again later. A put may have been done."""


class ObjectMissingError(ArchiveError):
    """The store has no object of that name."""


class ArchiveDamagedError(ArchiveError):
    """An object has other content than its name, its index or its manifest says."""


class NotArchivedError(ArchiveError):
    """The archive has no manifest, or its manifest has no such part of the log."""


class ArchiveUrlError(ArchiveError, ValueError):
    """No URL of an archive, or one that needs a package that is not installed."""


class BackupRefusedError(ArchiveError):
    """The archive is of another log, or ahead of this one, or the log is damaged: nothing of it is
    in a manifest."""
