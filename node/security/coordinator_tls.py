"""The embedded coordinator's certificates, which are replaced while it runs."""

import asyncio
import ssl
from dataclasses import dataclass

from ..access.certificates import CertificateFileError, check_authorities, check_pair
from ..settings.config_error import ConfigError
from .security_loading import TlsFiles, read_file, utc_now
from .served_tls import ServedTls
from .watched_files import WatchedFiles, state_of_file

INTERVAL_S = 5.0


@dataclass(frozen=True, slots=True)
class CoordinatorFiles:
    """Names of files; `ca_file` may be empty."""

    ca_file: str
    cert_file: str
    key_file: str

    def load(self) -> TlsFiles:
        """Raises ConfigError."""
        now = utc_now()
        try:
            authorities = read_file(self.ca_file) if self.ca_file else b""
            if authorities:
                check_authorities(self.ca_file, authorities, now)
            pair = (self.cert_file, read_file(self.cert_file))
            key = (self.key_file, read_file(self.key_file))
            until = check_pair(pair, key, now)
        except CertificateFileError as error:
            raise ConfigError(f"TLS of the coordinator: {error}") from None
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}") from error
        return TlsFiles(authorities, pair[1], key[1], until)


class CoordinatorTls:
    """Reads the files at once. Raises ConfigError."""

    def __init__(self, files: CoordinatorFiles, *, certificates_required: bool) -> None:
        self._files = files
        names = (files.ca_file, files.cert_file, files.key_file)
        self._watch = WatchedFiles(names, state_of_file)
        try:
            self.served = ServedTls(files.load(), certificates_required=certificates_required)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"TLS of the coordinator: {error}") from None

    async def watch(self) -> None:
        """Check the files until this is cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await asyncio.to_thread(self.reload_changed)

    def reload_changed(self) -> None:
        """Take what has changed, if it can be used."""
        if self._watch.changed():
            self.served.reload(self._files.load, self._files.cert_file)
