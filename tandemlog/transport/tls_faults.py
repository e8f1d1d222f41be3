"""Why a TLS connection could not be made, in words that name the certificate and the file.

gRPC says "Socket closed" where a server did not like our certificate, and quotes OpenSSL where we
did not like the server's. So after a failure the handshake is made once more, by Python's `ssl`,
which tells what it found. It never runs before a failure.

    our handshake fails      the server's certificate: expired, another authority, another host;
                             or no TLS there
    succeeds, then closed    the server did not like ours: it asked for one and got none, or one
                             that is expired or of another authority; a handshake in memory, ours
                             against our authority, tells which
    succeeds, and an answer  what was wrong is over: nothing to say
"""

import asyncio
import socket
import ssl
from dataclasses import dataclass

from .security import Security

TIMEOUT_S = 2.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_EXPIRED, _NOT_YET, _NO_ISSUER, _SELF_SIGNED, _OTHER_CHAIN = 10, 9, 20, 18, 19
_HOSTS = (62, 64)

MARKS = ("andshake", "erification", "Socket closed", "onnection reset", "SETTINGS frame", "SSL")
"""Of gRPC's texts, those behind which there may be a certificate."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`text` for people, `short` in a few words. `certain`: it will not pass by itself."""

    text: str
    short: str
    certain: bool = True


def may_be_handshake(details: str | None) -> bool:
    """Whether gRPC's details of a failed call may come from TLS."""
    return any(mark in (details or "") for mark in MARKS)


async def explain(endpoint: str, security: Security) -> Fault | None:
    """See the module; None: there is nothing wrong with certificates."""
    return await asyncio.to_thread(explain_now, endpoint, security)


def explain_now(endpoint: str, security: Security) -> Fault | None:
    """The same, in this thread; at most TIMEOUT_S for each step."""
    if not security.tls:
        return None
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    context = ssl.create_default_context()
    try:
        if security.ca_file:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(security.ca_file)
        if security.cert_file:
            context.load_cert_chain(security.cert_file, security.key_file)
        context.set_alpn_protocols(["h2"])
        with socket.create_connection((host, int(port)), TIMEOUT_S) as plain:
            try:
                secured = context.wrap_socket(plain, server_hostname=security.server_name or host)
            except ssl.SSLCertVerificationError as error:
                return _of_server(error, security, host)
            except ssl.SSLError as error:
                return _of_protocol(error)
            with secured:
                return _after(secured, security)
    except (OSError, ValueError):
        return None  # not reached at all, or files that are being replaced: gRPC's words will do


def _after(secured: ssl.SSLSocket, security: Security) -> Fault | None:
    try:
        secured.sendall(_PREFACE)
        if secured.recv(9):
            return None
    except TimeoutError:
        return None
    except ssl.SSLError as error:
        return _of_own(security, (error.reason or "").lower().replace("_", " "))
    except OSError:
        pass  # a reset is an end as well
    return _of_own(security)


def _of_server(problem: ssl.SSLCertVerificationError, security: Security, host: str) -> Fault:
    code, words = problem.verify_code, problem.verify_message
    authority = f"ca_file {security.ca_file}" if security.ca_file else "the known authorities"
    if code == _EXPIRED:
        return Fault(
            "the node's certificate has expired; renew it (or correct this machine's clock)",
            "its certificate has expired",
        )
    if code == _NOT_YET:
        return Fault(
            "the node's certificate is not valid yet; compare the clocks of the two machines",
            "its certificate is not valid yet",
        )
    if code in (_NO_ISSUER, _SELF_SIGNED, _OTHER_CHAIN):
        return Fault(
            f"the node's certificate is signed by another authority than that of {authority}",
            "its certificate is signed by another authority",
        )
    if code in _HOSTS:
        name = security.server_name or host
        return Fault(
            f"the node's certificate names other hosts than {name}; use an endpoint that it names, "
            "make one that names this host, or give server_name",
            "its certificate names another host",
        )
    return Fault(f"the node's certificate is not accepted: {words}", f"certificate: {words}")


def _of_protocol(problem: ssl.SSLError) -> Fault:
    reason = (problem.reason or "").lower().replace("_", " ")
    if problem.reason in (
        "WRONG_VERSION_NUMBER",
        "UNEXPECTED_EOF_WHILE_READING",
        "RECORD_LAYER_FAILURE",
    ):
        return Fault(
            "there is no TLS at this address: leave ca_file and cert_file out, or turn [tls] on "
            "at the node",
            "no TLS there",
            certain=problem.reason == "WRONG_VERSION_NUMBER",
        )
    return Fault(f"the TLS handshake failed: {reason}", f"TLS: {reason}", certain=False)


def _of_own(security: Security, alert: str = "") -> Fault:
    suffix = f" ({alert})" if alert else ""
    if not security.cert_file:
        return Fault(
            f"the node requires a client certificate{suffix}: give cert_file and key_file",
            "it requires a client certificate",
        )
    own = f"this side's certificate, cert_file {security.cert_file},"
    code = _verdict_on_own(security)
    if code == _EXPIRED:
        return Fault(f"{own} has expired{suffix}; renew it", "our certificate has expired")
    if code == _NOT_YET:
        return Fault(f"{own} is not valid yet{suffix}", "our certificate is not valid yet")
    if code in (_NO_ISSUER, _SELF_SIGNED, _OTHER_CHAIN):
        return Fault(
            f"{own} is signed by another authority than that of ca_file {security.ca_file}{suffix}",
            "our certificate is signed by another authority",
        )
    return Fault(
        f"the node ended the connection after the TLS handshake{suffix}: it may be stopping, or "
        f"not accept {own[:-1]}, signed by an authority that it does not know",
        "it ended the TLS connection",
        certain=False,
    )


def _verdict_on_own(security: Security) -> int:
    """What a server with our authority finds wrong with our certificate; 0: nothing."""
    if not security.ca_file:
        return 0
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(security.cert_file, security.key_file)
    server.load_verify_locations(security.ca_file)
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    client.load_cert_chain(security.cert_file, security.key_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_code
    return 0
