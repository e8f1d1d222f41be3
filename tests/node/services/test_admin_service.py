"""Each method of the protocol is implemented: a generated servicer would answer UNIMPLEMENTED.

The broker's service inherits from none, so that a method which it lacks keeps a node from starting.
"""

import inspect

from tandemlog.v1 import admin_pb2
from tandemlog_server.node.services.admin_service import AdminService


def test_every_call_is_implemented() -> None:
    methods = admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods_by_name
    assert methods
    for method in methods:
        assert inspect.getmodule(getattr(AdminService, method)) is inspect.getmodule(AdminService)
