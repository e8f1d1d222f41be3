"""The filter of a receive: tags, which are exact, or an SQL92 expression."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandemlog.format.constants import TAGS
from tandemlog.format.errors import FormatError
from tandemlog.format.filter.expression import FilterError
from tandemlog.format.record.tags import tag_hashes
from tandemlog.lazy import lazy
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.services.lease_desk import Selector

from ..error_status import RequestRefusedError, check_count
from ..pulls.pull_service import MAX_TAGS

if TYPE_CHECKING:
    from tandemlog.format.filter import parser
else:
    parser = lazy("tandemlog.format.filter.parser")  # the first filter loads lark


def selector(tags: Sequence[str], sql: str) -> Selector | None:
    """What the tags or the expression select, None for everything. Raises RequestRefusedError
    (INVALID_ARGUMENT)."""
    if tags and sql:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            "a receive has tags or a filter, not both: write `TAGS IN ('a', 'b') AND ...`",
            field="filter",
        )
    if not tags and not sql.strip():
        return None
    check_count("tags", len(tags), MAX_TAGS)
    try:
        if sql:
            return Selector(parser.parse(sql))
        texts = ", ".join("'" + tag.replace("'", "''") + "'" for tag in tags)
        return Selector(parser.parse(f"{TAGS} IN ({texts})"), tag_hashes(tags) or ())
    except (FilterError, FormatError) as error:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT, str(error), field="filter" if sql else "tags"
        ) from error
