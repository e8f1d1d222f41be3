"""docs/api.md, generated from signatures and docstrings, so that it stays up to date.

usage: python scripts/api_docs.py > docs/api.md

    tandemlog.__all__ ──▶ sections below, in this order; a name that no section has goes to the last
    tandemlog.errors  ──▶ the tree of errors, then each of them

A client for asyncio has the methods of its synchronous twin: of those only the signatures are
shown.
"""

import dataclasses
import enum
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tandemlog
from tandemlog import errors

HEAD = """# API reference

Every public name of the package `tandemlog`, with its docstring. [client.md](client.md)
explains how to use them, with examples.

This page is generated: change the docstrings and run `make docs`."""

TWINS = {
    "AsyncProducer": "Producer",
    "AsyncConsumer": "Consumer",
    "AsyncStream": "Stream",
    "AsyncAdmin": "Admin",
    "AsyncWork": "Work",
    "AsyncDelivery": "Delivery",
    "AsyncWorkAdmin": "WorkAdmin",
}
SECTIONS = {
    "Clients": ("Producer", "Consumer", "Stream", "Work", "Delivery", "Admin", "WorkAdmin"),
    "Clients for asyncio": tuple(TWINS),
    "Messages and results": (
        "Message",
        "SendFuture",
        "SendResult",
        "SendManyResult",
        "ReceivedMessage",
        "ReceivedBatch",
    ),
    "Work queues": (
        "Reject",
        "RetryAfter",
        "WorkOptions",
        "WorkStatistics",
        "GroupPolicy",
        "Backoff",
        "GroupWork",
        "DeadLetter",
    ),
    "Options": (
        "ProducerOptions",
        "FollowOptions",
        "ConnectionOptions",
        "ClientHook",
        "Security",
        "ReadFrom",
    ),
    "Profiles": ("Profile", "load_profile"),
}
MADE_BY_CALLS = frozenset(
    (
        "Stream",
        "AsyncStream",
        "Work",
        "AsyncWork",
        "Delivery",
        "AsyncDelivery",
        "SendFuture",
        "SendResult",
        "ReceivedMessage",
        "ReceivedBatch",
        "WorkStatistics",
        "GroupWork",
        "DeadLetter",
    )
)
"""Results: no program makes them, so their constructors are not shown."""
REST = "What else there is"
CONSTANTS = "Constants"
_MODULES = re.compile(r"\b(?:[a-z_][a-z0-9_]*\.)+(?=[A-Za-z_])")
WIDTH = 100


def api_markdown() -> str:
    """The whole text of docs/api.md."""
    return "\n\n".join([HEAD, *_sections(), *_errors()]) + "\n"


def _sections() -> Iterator[str]:
    names = [name for name in tandemlog.__all__ if name not in ("errors", "TandemlogError")]
    constants = [name for name in names if isinstance(getattr(tandemlog, name), str | int)]
    placed = {name for members in SECTIONS.values() for name in members}
    rest = tuple(sorted(set(names) - placed - set(constants)))
    for title, members in {**SECTIONS, REST: rest}.items():
        if members:
            yield f"## {title}"
        for name in members:
            yield from _entry(name, getattr(tandemlog, name), "###")
    if constants:
        rows = [f"- `{name}` = `{getattr(tandemlog, name)!r}`" for name in sorted(constants)]
        yield f"## {CONSTANTS}"
        yield "\n".join(rows)


def _entry(name: str, value: Any, heading: str) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"{heading} {name}"
        yield from _class(name, value)
    else:
        yield f"{heading} {name}"
        yield _code(f"{name}{_signature(value)}")
        yield _prose(inspect.getdoc(value) or "")


def _class(name: str, kind: type) -> Iterator[str]:
    if issubclass(kind, enum.Enum):
        yield _prose(inspect.getdoc(kind) or "")
        yield "\n".join(f"- `{name}.{each.name}` = `{each.value!r}`" for each in kind)
        return
    if name not in MADE_BY_CALLS:
        yield _code(f"{name}{_class_signature(kind)}")
    twin = TWINS.get(name)
    if twin is not None:
        yield f"[{twin}](#{twin.lower()}) for asyncio. Its methods, described there:"
        other = getattr(tandemlog, twin)
        same = [each for each in _members(kind) if hasattr(other, each[0])]
        yield _code("\n".join(_shown(*each) for each in same))
        own = [each for each in _members(kind) if not hasattr(other, each[0])]
    else:
        if text := _own_doc(kind):
            yield _prose(text)
        own = list(_members(kind))
    for attribute, member in own:
        yield _code(_shown(attribute, member))
        if text := inspect.cleandoc(_function(member).__doc__ or ""):
            yield _prose(text)


def _own_doc(kind: type) -> str:
    """Its docstring, unless that is the one that dataclasses make."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else text


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, those of its bases in this package too, in their order."""
    fields = {each.name for each in dataclasses.fields(kind)} if _is_dataclass(kind) else set()
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] != "tandemlog":
            continue
        for attribute, member in vars(base).items():
            if attribute.startswith("_") or attribute in fields:
                continue
            if isinstance(member, property | classmethod | staticmethod) or callable(member):
                found[attribute] = member
    yield from found.items()


def _function(member: Any) -> Any:
    function = member.fget if isinstance(member, property) else member
    return getattr(function, "__func__", function)


def _shown(name: str, member: Any) -> str:
    function = _function(member)
    if isinstance(member, property):
        kind = inspect.signature(function).return_annotation
        return f"{name}: {_type(kind)}" if kind is not inspect.Signature.empty else name
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    return f"{prefix}{name}{_signature(function)}"


def _is_dataclass(kind: type) -> bool:
    return dataclasses.is_dataclass(kind)


def _class_signature(kind: type) -> str:
    return _signature(kind.__init__) if "__init__" in _all_vars(kind) else "()"  # type: ignore[misc]


def _all_vars(kind: type) -> set[str]:
    return {name for base in kind.__mro__ if base is not object for name in vars(base)}


def _signature(function: Callable[..., Any]) -> str:
    """One line if it fits, else one parameter a line."""
    signature = inspect.signature(function)
    parts, star = [], False
    for each in signature.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or each.kind is each.VAR_POSITIONAL
        parts.append(_parameter(each))
    returns = signature.return_annotation
    end = "" if returns in (inspect.Signature.empty, None) else f" -> {_type(returns)}"
    line = f"({', '.join(parts)}){end}"
    if len(line) <= WIDTH - 20:
        return line
    return "(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def _parameter(each: inspect.Parameter) -> str:
    text = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(each.kind.name, "") + each.name
    if each.annotation is not each.empty:
        text += f": {_type(each.annotation)}"
    if each.default is not each.empty:
        text += f"{' = ' if ':' in text else '='}{_default(each.default)}"
    return text


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is os.environ:
        return "os.environ"
    if repr(value) == "<factory>":
        return "…"
    return repr(value)


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULES.sub("", text.replace("~", "")).replace("NoneType", "None")


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _prose(text: str) -> str:
    """A docstring as Markdown: paragraphs stay, indented blocks become code."""
    parts = []
    for part in re.split(r"\n\s*\n", text):
        if all(line.startswith("    ") for line in part.splitlines()):
            parts.append(_code(textwrap.dedent(part)))
        else:
            parts.append(part.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*"))
    return "\n\n".join(parts)


def _errors() -> Iterator[str]:
    yield "## Errors"
    yield _prose(
        "All are in `tandemlog.errors`. [troubleshooting.md](troubleshooting.md) tells what to do "
        "about each. The tree:"
    )
    yield _code("\n".join(_tree(errors.TandemlogError, 0)))
    for kind in error_classes():
        base = kind.__bases__[0].__name__
        yield f"### {kind.__name__}"
        yield _prose(_own_doc(kind) or f"A kind of {base}.")


def error_classes() -> list[type[errors.TandemlogError]]:
    """All public errors, in the order of the module."""
    return [
        each
        for name, each in vars(errors).items()
        if inspect.isclass(each)
        and issubclass(each, errors.TandemlogError)
        and not name.startswith("_")
    ]


def _tree(kind: type, depth: int) -> Iterator[str]:
    yield "  " * depth + kind.__name__
    known = error_classes()
    for each in known:
        if each.__bases__[0] is kind:
            yield from _tree(each, depth + 1)


if __name__ == "__main__":
    sys.stdout.write(api_markdown())
