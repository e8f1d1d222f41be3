"""What protects one node, from its start on: certificates, identities, and their replacement.

    every reload_interval_ms: a file changed? ──▶ read all of its kind ──▶ check ──▶ swap, one line
                                                                     └─ a fault ──▶ keep, one line

A reload happens in a thread, since it reads files; only the swap of the access file is in the loop.
A fault never stops a node that runs: the old certificates and identities stay in use.
"""

import asyncio
import datetime
import logging
import ssl
import time
from collections.abc import Callable

from tandemlog_server.storage.clock import duration

from ..access.doorkeeper import Doorkeeper
from ..access.identities import Access, CallerLimits
from ..settings.config_error import ConfigError
from ..settings.node_config import NodeConfig
from .security_loading import Read, TlsFiles, load_access, load_tls, load_token, read_file, utc_now
from .served_tls import ServedTls
from .watched_files import FileState, WatchedFiles, state_of_file

CERTIFICATE_WARNING_S = 14 * 86_400

logger = logging.getLogger(__name__)


class NodeSecurity:
    """See the module. Reads every file at once. Raises ConfigError.

    `doorkeeper` knows the callers; `tls` is None if this node serves without."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        read: Read = read_file,
        state_of: Callable[[str], FileState | None] = state_of_file,
        now: Callable[[], datetime.datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._read = read
        self._now = now
        section, limits = config.tls, config.limits
        # looked at before they are read: what changes in between is read again
        self._tls_watch = WatchedFiles(
            (section.ca_file, section.cert_file, section.key_file), state_of
        )
        self._access_watch = WatchedFiles((config.security.access_file,), state_of)
        files = load_tls(config, read=read, now=now())
        access = load_access(config, read=read)
        load_token(config, read=read)
        self.tls = self._served(files)
        self.doorkeeper = Doorkeeper(
            config.cluster_id,
            monotonic=monotonic,
            now=now,
            access=access,
            certificates_required=section.requires_certificates,
            open_health=config.security.open_health,
            connection_limits=CallerLimits(
                limits.connection_calls,
                limits.connection_streams,
                limits.connection_long_polls,
                limits.connection_bytes_in_flight,
                limits.connection_calls_per_s,
                limits.connection_bytes_per_s,
            ),
        )
        self._say(files, access)

    @property
    def watches(self) -> bool:
        """Whether there is a file that may be replaced."""
        return self.tls is not None or bool(self._config.security.access_file)

    def certificate_expiry_s(self) -> float | None:
        """When this node's certificate expires, in seconds since 1970; None without TLS."""
        return None if self.tls is None else self.tls.files.expires_at.timestamp()

    def certificate_fault(self) -> str:
        """What `tandemlog check` says of a certificate that expires soon."""
        expiry_s = self.certificate_expiry_s()
        left_s = None if expiry_s is None else expiry_s - self._now().timestamp()
        if left_s is None or left_s > CERTIFICATE_WARNING_S:
            return ""
        remaining = duration(round(left_s * 1000))
        return (
            f"the certificate {self._config.tls.cert_file} expires in {remaining}: replace the "
            "file (docs/security.md), the node reads it while it runs"
        )

    async def watch(self) -> None:
        """Check the files until this is cancelled."""
        while True:
            await asyncio.sleep(self._config.tls.reload_interval_ms / 1000)
            try:
                await self.reload_changed()
            except Exception:
                # no file may end the looks at files: a token could not be revoked any more
                logger.exception("new files of [tls] or [security] are not used")

    async def reload_changed(self) -> None:
        """Take what has changed, if it can be used."""
        if self.tls is not None and await asyncio.to_thread(self._tls_watch.changed):
            cert_file = self._config.tls.cert_file
            await asyncio.to_thread(self.tls.reload, self._load_tls, cert_file)
        if await asyncio.to_thread(self._access_watch.changed):
            access = await asyncio.to_thread(self._reloaded_access)
            if access is not None:
                self.doorkeeper.replace_access(access)

    def _load_tls(self) -> TlsFiles:
        files = load_tls(self._config, read=self._read, now=self._now())
        assert files is not None
        return files

    def _reloaded_access(self) -> Access | None:
        try:
            access = load_access(self._config, read=self._read)
        except ConfigError as error:
            logger.error("the new access file is not used, the old identities stay: %s", error)
            return None
        if access is not None:
            logger.info("a new access file is in use: %d identities", len(access.identities))
        return access

    def _served(self, files: TlsFiles | None) -> ServedTls | None:
        if files is None:
            return None
        try:
            return ServedTls(files, certificates_required=self._config.tls.requires_certificates)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"tls: the files of this node cannot be used: {error}") from None

    def _say(self, files: TlsFiles | None, access: Access | None) -> None:
        if files is None and access is None:
            return
        until = "" if files is None else files.expires_at.isoformat(timespec="seconds")
        logger.info(
            "security: tls=%s certificates=%s identities=%s",
            f"until {until}" if until else "off",
            self._config.tls.client_certificates,
            "off" if access is None else len(access.identities),
        )
