"""Is the process in this container well? Exit code 0, or 1 with the reason on stdout.

    health.py                 GET /health on the node's HTTP port (TANDEMLOG_HTTP_LISTEN)
    health.py grpc HOST:PORT  the port answers HTTP/2: the embedded coordinator

It asks for an answer, not for a connection: the kernel accepts for a process that is frozen. Where
the node has TLS ([tls]), it presents the node's own certificate; whose the answer is needs no
proof, because it comes from this container. Plain sockets, because the engine runs this every two
seconds and an HTTP library costs more than the question.
"""

import os
import socket
import ssl
import sys

TIMEOUT_S = 1.5
# the client's preface of HTTP/2 and an empty SETTINGS frame: a server answers with its own
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
SETTINGS = 4


def connected(host, port, protocols):
    plain = socket.create_connection((host, port), TIMEOUT_S)
    certificate = os.environ.get("TANDEMLOG_TLS__CERT_FILE")
    if not certificate:
        return plain
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate, os.environ["TANDEMLOG_TLS__KEY_FILE"])
    context.set_alpn_protocols(protocols)
    return context.wrap_socket(plain)


def address(text):
    host, _, port = text.rpartition(":")
    return ("127.0.0.1" if host in ("0.0.0.0", "[::]") else host.strip("[]")), int(port)


def http():
    at = address(os.environ.get("TANDEMLOG_HTTP_LISTEN", "127.0.0.1:10921"))
    with connected(*at, ["http/1.1"]) as line:
        line.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    status = answer.split(b" ", 2)[1:2]
    if status != [b"200"]:
        raise OSError(f"the node answered {answer[-300:].decode(errors='replace')}")


def grpc(endpoint):
    with connected(*address(endpoint), ["h2"]) as line:
        line.sendall(HELLO)
        answer = line.recv(9)
    if len(answer) < 4 or answer[3] != SETTINGS:
        raise OSError(f"{endpoint} does not answer HTTP/2")


try:
    if sys.argv[1:2] == ["grpc"]:
        grpc(sys.argv[2])
    else:
        http()
except (OSError, ValueError, KeyError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
