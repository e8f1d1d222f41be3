"""The options of both sources that say how a cluster is reached, beside its endpoint."""

from typing import Final

CONNECTING: Final = {
    "cluster": "cluster",
    "caFile": "ca_file",
    "certFile": "cert_file",
    "keyFile": "key_file",
    "token": "token",
    "tokenFile": "token_file",
    "serverName": "server_name",
}
"""Option -> setting of tandemlog/cluster/profiles.py."""
