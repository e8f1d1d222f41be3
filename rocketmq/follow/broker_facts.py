"""What a broker says of itself, by remoting: who it is, and how long its log is.

The HA wire tells neither, so both are asked for before each connection to it.

A broker is checked like a stranger: answers and names have a greatest length, numbers the range
that they can have in RocketMQ and here. Anything beyond raises a BrokerError that names the key,
and the node asks again later, since the broker may have been corrected by then.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tandemlog.format.constants import PERM_WRITE
from tandemlog.format.errors import FormatError
from tandemlog.format.files import store_json
from tandemlog.format.words import quoted, shortened, visible
from tandemlog_server.storage.config import LOG_FILE_SIZES

from ..wire.client import RemotingClient
from ..wire.errors import BrokerError, BrokerRefusedError, WrongBrokerError
from ..wire.requests import (
    GET_BROKER_CLUSTER_INFO,
    GET_BROKER_CONFIG,
    GET_BROKER_RUNTIME_INFO,
)
from .address import BrokerAddress, registered_place

MASTER_ID = "0"
_VERSION = re.compile(r"V(\d{1,4})_(\d{1,4})_(\d{1,4})", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,19}")

ANSWER_BYTES = 1 << 20
"""Of the settings, the runtime information and a name server's table: a broker's have some 20 KB.
They are read in the event loop."""
MAX_NAME = 255
"""Characters of the name of a broker or a cluster."""
PORTS = range(1, 1 << 16)
PERMISSIONS = range(1 << 31)
OFFSETS = range(-1, 1 << 62)
"""Of a log; a broker without a log file says -1."""
TIMES_MS = range(1 << 62)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """`begin_offset` and `end_offset` are those of its commit log, `file_size` that of its log
    files in bytes, `takes_writes` whether its permission allows them, `boot_ms` when its process
    began: in one process a log never gets shorter."""

    host: str
    port: int
    ha_port: int
    cluster: str
    name: str
    role: str
    version: str
    file_size: int
    begin_offset: int
    end_offset: int
    takes_writes: bool
    boot_ms: int = 0

    @property
    def address(self) -> str:
        return _joined(self.host, self.port)

    @property
    def ha_address(self) -> str:
        return _joined(self.host, self.ha_port)

    @property
    def waits_for_slaves(self) -> bool:
        """Whether its puts wait for the number that a slave sends."""
        return self.role == "SYNC_MASTER"

    @property
    def title(self) -> str:
        """For people: which broker this is, on any terminal."""
        return visible(f"broker {self.name} of cluster {self.cluster} at {self.address}")


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Where the broker's commit log begins and ends, and when its process began (0: it does not
    say)."""

    begin_offset: int
    end_offset: int
    boot_ms: int


async def find_broker(address: BrokerAddress) -> tuple[str, int]:
    """The place of the broker itself: as given, or as a name server knows it. Raises
    BrokerError."""
    if not address.broker_name:
        return address.places[0]
    faults = []
    for host, port in address.places:
        try:
            async with RemotingClient(host, port) as client:
                body = (await client.call(GET_BROKER_CLUSTER_INFO, most_bytes=ANSWER_BYTES)).body
            return master_place(address.broker_name, body, f"{host}:{port}")
        except BrokerError as error:
            faults.append(str(error))
    raise BrokerError(f"no name server tells where the broker is: {'; '.join(faults)}")


async def ask_facts(client: RemotingClient, host: str, port: int) -> BrokerFacts:
    """Raises BrokerError, and WrongBrokerError for a broker that cannot be followed."""
    try:
        settings = properties((await client.call(GET_BROKER_CONFIG, most_bytes=ANSWER_BYTES)).body)
        runtime = await _ask_runtime(client)
    except BrokerRefusedError as error:
        raise BrokerError(
            f"{error}: give the listen port of a broker, and switch access control off for this "
            "node's requests (26, 28, 21, 43, 45, 201)"
        ) from error
    return facts_of(host, port, settings, runtime)


async def ask_span(client: RemotingClient) -> LogSpan:
    """Raises BrokerError."""
    return _span(await _ask_runtime(client))


def facts_of(
    host: str, port: int, settings: Mapping[str, str], runtime: Mapping[str, str]
) -> BrokerFacts:
    """Raises BrokerError for settings that lack something, WrongBrokerError for a broker that
    cannot be followed."""
    span = _span(runtime)
    facts = BrokerFacts(
        host=host,
        port=port,
        ha_port=_number(settings, "haListenPort", PORTS),
        cluster=_text(settings, "brokerClusterName"),
        name=_text(settings, "brokerName"),
        role=settings.get("brokerRole", ""),
        version=_version(runtime),
        file_size=_number(settings, "mappedFileSizeCommitLog", LOG_FILE_SIZES),
        begin_offset=span.begin_offset,
        end_offset=span.end_offset,
        takes_writes=bool(_number(settings, "brokerPermission", PERMISSIONS) & PERM_WRITE),
        boot_ms=span.boot_ms,
    )
    if settings.get("enableControllerMode") == "true":
        raise WrongBrokerError(
            f"{facts.title} runs in controller mode, whose HA wire only members of its own "
            "cluster speak: follow a broker with brokerRole ASYNC_MASTER or SYNC_MASTER"
        )
    if settings.get("enableDLegerCommitLog") == "true":
        raise WrongBrokerError(
            f"{facts.title} keeps its log in DLedger, which has no HA wire: follow a broker "
            "with brokerRole ASYNC_MASTER or SYNC_MASTER"
        )
    if facts.role == "SLAVE":
        raise WrongBrokerError(f"{facts.title} is a slave itself: follow its master")
    if settings.get("duplicationEnable") == "true":
        raise WrongBrokerError(f"{facts.title} has duplicationEnable, which cannot be followed")
    return facts


def properties(data: bytes) -> dict[str, str]:
    """The settings in a body of lines `key=value`."""
    lines = (line.partition("=") for line in data.decode("utf-8", "replace").splitlines())
    return {key.strip(): value.strip() for key, equals, value in lines if equals}


async def _ask_runtime(client: RemotingClient) -> Mapping[str, str]:
    document = _document((await client.call(GET_BROKER_RUNTIME_INFO, most_bytes=ANSWER_BYTES)).body)
    table = document.get("table")
    if not isinstance(table, dict):
        raise BrokerError("the broker's runtime information has no table")
    return {str(key): str(value) for key, value in table.items()}


def _document(body: bytes) -> Mapping[object, object]:
    try:
        document = store_json.loads(body)
    except FormatError as error:
        raise BrokerError(f"the broker's answer cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise BrokerError("the broker's answer is not a JSON object")
    return dict(document)


def master_place(name: str, body: bytes, server: str) -> tuple[str, int]:
    """Where the master of the broker `name` is, by the ClusterInfo of a name server. Raises
    BrokerError."""
    table = _document(body).get("brokerAddrTable")
    row = table.get(name) if isinstance(table, dict) else None
    if not isinstance(row, dict):
        names = ", ".join(sorted(map(str, table))) if isinstance(table, dict) else ""
        raise BrokerError(
            f"name server {server} knows no broker {name!r}; it knows: {shortened(names) or 'none'}"
        )
    addresses = row.get("brokerAddrs")
    by_id = (
        {str(key): value for key, value in addresses.items()} if isinstance(addresses, dict) else {}
    )
    if MASTER_ID not in by_id:
        raise BrokerError(f"name server {server} knows no master of broker {name!r} now")
    try:
        return registered_place(str(by_id[MASTER_ID]))
    except ValueError as error:
        raise BrokerError(f"name server {server}: {error}") from None


def _span(runtime: Mapping[str, str]) -> LogSpan:
    """A broker without a log file says that its log begins at -1."""
    begin, end = (_number(runtime, f"commitLog{which}Offset", OFFSETS) for which in ("Min", "Max"))
    boot = _number(runtime, "bootTimestamp", TIMES_MS) if "bootTimestamp" in runtime else 0
    if begin > max(end, 0):
        raise BrokerError(
            f"the broker says that its log begins at {begin}, its commitLogMinOffset, and ends at "
            f"{end}, its commitLogMaxOffset: follow a broker whose log begins before it ends"
        )
    return LogSpan(max(begin, 0), max(end, 0), boot)


def _number(table: Mapping[str, str], key: str, allowed: range) -> int:
    text = table.get(key, "")
    if not text:
        raise BrokerError(f"the broker does not say its {key}")
    if _INTEGER.fullmatch(text) is None or int(text) not in allowed:
        raise BrokerError(
            f"the broker gives {quoted(text)} as its {key}, which must be {allowed[0]} .. "
            f"{allowed[-1]}: correct it there, or follow another broker"
        )
    return int(text)


def _text(table: Mapping[str, str], key: str) -> str:
    text = table.get(key, "")
    if not text:
        raise BrokerError(f"the broker does not say its {key}")
    if len(text) > MAX_NAME:
        raise BrokerError(
            f"the broker gives {quoted(text)} as its {key}, which may have {MAX_NAME} characters: "
            "correct it there, or follow another broker"
        )
    return text


def _version(runtime: Mapping[str, str]) -> str:
    match = _VERSION.search(runtime.get("brokerVersionDesc", ""))
    return ".".join(match.groups()) if match else ""


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
