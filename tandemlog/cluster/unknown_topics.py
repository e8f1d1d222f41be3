"""The error for a topic that does not exist, with the way out."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import UnknownTopicError
from ..lazy import lazy

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")


def unknown_topics(names: Iterable[str], known: Iterable[str] = ()) -> UnknownTopicError:
    """Says how to create the topics `names`, and which of `known` have a name close to theirs."""
    missing = sorted(names)
    every = sorted(known)
    close = [each for name in missing for each in difflib.get_close_matches(name, every)]
    hint = f"did you mean {' or '.join(dict.fromkeys(close))}? " if close else ""
    what = (
        f"topic {missing[0]!r} does not exist"
        if len(missing) == 1
        else f"topics that do not exist: {', '.join(missing)}"
    )
    return UnknownTopicError(
        f"{what}; {hint}create it with Admin.create_topic({missing[0]!r}) or "
        f"`tandemlog topic create {missing[0]}`",
        field="topic",
    )
