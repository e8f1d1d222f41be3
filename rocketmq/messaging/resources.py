"""Names of topics and groups in a request: `ns%name` for a name within a namespace, as RocketMQ has
them in its tables; the namespace is empty by default."""

from tandemlog.format.constants import client_topic_fault, group_fault
from tandemlog.format.words import quoted
from tandemlog.rocketmq_v2 import messaging_pb2 as v2

from .refusals import MessagingRefusedError


def full_name(resource: v2.Resource) -> str:
    """As the tables of a node have it."""
    space = resource.resource_namespace
    return f"{space}%{resource.name}" if space else resource.name


def as_asked(name: str, space: str) -> v2.Resource:
    """The resource of a table's name, for a client of this namespace."""
    return v2.Resource(resource_namespace=space, name=name.removeprefix(f"{space}%"))


def topic_of(resource: v2.Resource) -> str:
    """Raises MessagingRefusedError for a name that no client's topic can have."""
    name = full_name(resource)
    fault = client_topic_fault(name, new=False)
    if fault is not None:
        raise MessagingRefusedError(v2.ILLEGAL_TOPIC, f"topic {quoted(name)}: {fault}")
    return name


def group_of(resource: v2.Resource) -> str:
    """Raises MessagingRefusedError for a name that no group can have."""
    name = full_name(resource)
    fault = group_fault(name)
    if fault is not None:
        raise MessagingRefusedError(v2.ILLEGAL_CONSUMER_GROUP, f"group {quoted(name)}: {fault}")
    return name
