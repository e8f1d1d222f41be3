"""Every call of the protocol is answered by the node: none is left to the generated stub."""

import inspect

import pytest

from node.services.admin_service import AdminService
from node.services.broker_service import BrokerService
from tandemlog.v1 import admin_pb2, broker_pb2


@pytest.mark.parametrize(
    ("service", "name", "descriptor"),
    [
        (AdminService, "Admin", admin_pb2.DESCRIPTOR),
        (BrokerService, "Broker", broker_pb2.DESCRIPTOR),
    ],
)
def test_every_call_is_implemented(service: type, name: str, descriptor: object) -> None:
    methods = descriptor.services_by_name[name].methods_by_name  # type: ignore[attr-defined]
    assert methods
    for method in methods:
        assert inspect.getmodule(getattr(service, method)) is inspect.getmodule(service), method
