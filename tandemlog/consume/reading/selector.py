"""Which messages a reader wants: those with some of these tags, and of these those that a filter
selects.

Nodes compare the hashes of tags, so of what they send the client takes only those with one of the
texts. A filter (RocketMQ's SQL92 over properties) is evaluated by the node alone.
"""

from dataclasses import dataclass

from ...errors import InvalidArgumentError
from ...format.errors import FormatError
from ...format.record.tags import parse_tags, tag_hashes


@dataclass(frozen=True, slots=True)
class Selector:
    """`tags` None: all; `where` empty: no filter."""

    tags: frozenset[str] | None = None
    where: str = ""

    @classmethod
    def of(cls, tags: str | None, where: str | None = None) -> "Selector":
        """Raises InvalidArgumentError for what is no expression of tags, or a filter that says
        nothing."""
        try:
            wanted = parse_tags(tags)
        except FormatError as error:
            raise InvalidArgumentError(str(error), field="tags") from error
        if where is not None and not isinstance(where, str):
            raise InvalidArgumentError(f"where={where!r}: a filter is a text", field="where")
        if where is not None and not where.strip():
            raise InvalidArgumentError("where: the filter is empty", field="where")
        return cls(wanted, where or "")

    @property
    def is_narrow(self) -> bool:
        """Whether nodes leave messages out."""
        return self.tags is not None or bool(self.where)

    @property
    def hashes(self) -> list[int]:
        """Of the tags, as nodes compare them; empty for all."""
        return sorted(tag_hashes(self.tags) or ())


EVERYTHING = Selector()
