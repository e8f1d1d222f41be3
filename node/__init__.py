"""A node: one store, its role, its services and its settings; and the program `tandemlog`.

gRPC's core writes a line to stderr for each TLS handshake that fails, past every logger: a stranger
could fill the disk with them. It reads its level when it is loaded, so that is set here, before
anything imports it; GRPC_VERBOSITY=INFO shows the lines to an operator who looks for them.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
