"""What becomes of clients in a process that was forked.

    parent   Producer, Consumer, streams ...   work on, undisturbed
      │ fork
    child    the same objects: every use is a ForkedClientError at once, closing them does nothing
             new ones: work (own_grpc.py)

A child has no thread that could answer, the locks of a client may be held by a thread that it does
not have, and whatever it sent would bear the parent's name. So the clients of the parent change
their class in the child: nothing is checked, and nothing costs time, in a process that never forks.

Invariant: in a child nothing of a watched client runs but its `close`, which then does nothing.
"""

import os
import weakref
from typing import Any, NoReturn, Protocol, runtime_checkable

from .errors import ForkedClientError


@runtime_checkable
class Inheritable(Protocol):
    """What knows itself what to do in a child."""

    def in_child(self, error: ForkedClientError) -> None: ...


_watched: "weakref.WeakSet[Any]" = weakref.WeakSet()
_process = os.getpid()


def watch(client: object) -> None:
    """Makes `client` unusable in children of this process. Its `close` must begin with a look at
    `inherited`. Something Inheritable is told instead."""
    _watched.add(client)


def inherited(client: object) -> bool:
    """Whether it was made before this process was forked."""
    return isinstance(client, _Inherited)


def forked_error(name: str) -> ForkedClientError:
    return ForkedClientError(
        f"this {name} was made in process {_process}, of which this one ({os.getpid()}) is a fork; "
        "make a new one in the child, after the fork (gunicorn: in post_fork or at the first use, "
        "Celery: in worker_process_init, multiprocessing: in the function that the child runs)"
    )


class _Inherited:
    """A class of clients that came by fork."""

    __slots__ = ()


def _refuse(client: object, *_: object) -> NoReturn:
    raise forked_error(type(client).__name__)


async def _refuse_later(client: object) -> NoReturn:
    _refuse(client)


def _attribute(client: object, name: str) -> Any:
    if name == "close" or (name.startswith("__") and name.endswith("__")):
        return object.__getattribute__(client, name)
    _refuse(client)


def _inherited_class(made: type[object]) -> type[object]:
    """Of the same layout as `made`, or an object could not change to it."""
    members = {
        "__slots__": (),
        "__module__": made.__module__,
        "__getattribute__": _attribute,
        "__setattr__": _refuse,
        "__enter__": _refuse,
        "__iter__": _refuse,
        "__aiter__": _refuse,
        "__aenter__": _refuse_later,
    }
    return type(made.__name__, (made, _Inherited), members)


def _in_child() -> None:
    global _process
    classes: dict[type[object], type[object]] = {}
    for client in list(_watched):
        if isinstance(client, Inheritable):
            client.in_child(forked_error("future"))
        else:
            made: type[object] = type(client)
            if made not in classes:
                classes[made] = _inherited_class(made)
            client.__class__ = classes[made]
    _watched.clear()
    _process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
