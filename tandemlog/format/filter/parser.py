"""The text of a filter, parsed by lark with RocketMQ's grammar (SelectorParser.jj).

Two things are stricter than there. What follows a complete condition is an error, where RocketMQ
ignores it (`a = 1 b = 2` selects as `a = 1`); and a text and its tree have bounds. One is less
strict: RocketMQ refuses the number 0.0. As there, NOT binds closer than a comparison: `NOT a = 5`
is `(NOT a) = 5`.
"""

import re
from functools import cache, lru_cache
from typing import Any, Final

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from .expression import (
    And,
    Condition,
    Constant,
    FilterError,
    IsNull,
    Not,
    Operand,
    Or,
    Property,
    Search,
    SearchKind,
    Text,
    between,
    condition,
    decimal_number,
    equal,
    like,
    negative,
    not_between,
    one_of,
    ordered,
    parts_of,
    whole_number,
)

MAX_CHARACTERS: Final = 8192
MAX_DEPTH: Final = 64
_TOO_DEEP: Final = f"more than {MAX_DEPTH} levels of conditions in each other"
_CACHED: Final = 256
"""Trees of filters that have at most _SHORT characters, and 3 MB together."""
_SHORT: Final = 512
_CACHED_LONG: Final = 16
"""Trees of longer ones: one may have 300 KB."""
_MANY_MINUSES: Final = "-" * (MAX_DEPTH + 1)
_MINUSES: Final = re.compile(
    r"'(?:''|[^'])*'|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/|--[^\n\r]*[\n\r]|'|/\*|" + _MANY_MINUSES
)
"""Texts and comments; or more minuses than levels; or the begin of what does not end."""

_GRAMMAR: Final = r"""
    ?start: any

    ?any: all | any OR all                       -> either
    ?all: equality | all AND equality            -> both

    ?equality: comparison
        | equality "=" comparison                -> equal
        | equality _DIFFERS comparison               -> differs
        | equality IS NULL                       -> is_null
        | equality IS NOT NULL                   -> is_not_null

    ?comparison: unary
        | comparison ORDER unary                 -> ordered
        | comparison BETWEEN unary AND unary     -> between
        | comparison NOT BETWEEN unary AND unary -> not_between
        | comparison IN texts                    -> one_of
        | comparison NOT IN texts                -> none_of
        | comparison SEARCH text                 -> search
        | comparison NOT SEARCH text             -> not_search
        | comparison LIKE text [ESCAPE text]     -> like
        | comparison NOT LIKE text [ESCAPE text] -> not_like

    ?unary: primary
        | "+" unary
        | "-" unary                              -> negative
        | NOT unary                              -> negation

    ?primary: text                               -> literal_text
        | WHOLE                                  -> whole_number
        | DECIMAL                                -> decimal_number
        | TRUE                                   -> true
        | FALSE                                  -> false
        | NULL                                   -> null
        | NAME                                   -> property
        | "(" any ")"

    texts: "(" text ("," text)* ")"
    text: STRING

    _DIFFERS.4: "<>"
    ORDER: ">=" | "<=" | ">" | "<"
    STRING: /'(''|[^'])*'/
    DECIMAL.2: /[0-9]+\.[0-9]*(E[+-]?[0-9]+)?|\.[0-9]+(E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+/i
    WHOLE: /(0|[1-9][0-9]*L?)(?![a-z0-9_$])/i
    NAME: /[a-z_$][a-z0-9_$]*/i
    SEARCH.3: /(CONTAINS|STARTSWITH|ENDSWITH)(?![a-z0-9_$])/i
    %(words)s
    %%ignore /[ \t\n\r\f]+/
    %%ignore /--[^\n\r]*(\r\n|\n|\r)/
    %%ignore /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
"""
_WORDS: Final = (
    "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "LIKE", "ESCAPE",
)  # fmt: skip
_SHOWN: Final = {
    "STRING": "a text in quotes", "DECIMAL": "a number", "WHOLE": "a number", "NAME": "a property",
    "SEARCH": "CONTAINS, STARTSWITH, ENDSWITH", "ORDER": "<, <=, >, >=", "EQUAL": "=",
    "_DIFFERS": "<>", "LPAR": "(", "RPAR": ")", "COMMA": ",", "PLUS": "+", "MINUS": "-",
    "$END": "the end",
}  # fmt: skip


def parse(text: str) -> Condition:
    """Raises FilterError, which says where and what was expected."""
    if len(text) > MAX_CHARACTERS:
        raise FilterError(f"{len(text)} characters, the limit is {MAX_CHARACTERS}")
    return _parse_short(text) if len(text) <= _SHORT else _parse_long(text)


def _parse(text: str) -> Condition:
    _check_minuses(text)
    try:
        tree: Any = _parser().parse(text)
    except UnexpectedInput as error:
        raise _explained(text, error) from None
    _check_depth(tree)
    return condition(tree)


_parse_short: Final = lru_cache(_CACHED)(_parse)
_parse_long: Final = lru_cache(_CACHED_LONG)(_parse)


def _explained(text: str, error: UnexpectedInput) -> FilterError:
    names: set[str] = set()
    if isinstance(error, UnexpectedCharacters):
        position = error.pos_in_stream or 0
        what, names = f"unexpected {text[position]!r}", error.allowed or set()
    elif isinstance(error, UnexpectedToken) and error.token.type != "$END":
        position = error.pos_in_stream or 0
        what, names = f"unexpected {str(error.token)!r}", error.accepts or error.expected
    else:
        position, what = len(text), "it ends too early"
        if isinstance(error, UnexpectedToken):
            names = error.accepts or error.expected
    wanted = ", ".join(sorted({_SHOWN.get(name, name) for name in names}))
    return FilterError(f"{what}; expected {wanted}" if wanted else what, position)


def _check_minuses(text: str) -> None:
    """Any two minuses might begin a comment, whose end the parser would look for in all the rest of
    the filter: for thousands in a row that takes a second."""
    if _MANY_MINUSES not in text:
        return
    for found in _MINUSES.finditer(text):
        if found[0] == _MANY_MINUSES:
            raise FilterError(_TOO_DEEP, found.start())
        if found[0] in ("'", "/*"):
            return  # the parser refuses it


def _check_depth(tree: Operand) -> None:
    """Without recursion: the tree may be as deep as the text is long. BETWEEN has its first operand
    twice in the tree, so each operand is looked at once."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise FilterError(_TOO_DEEP)
        level = list({id(part): part for operand in level for part in parts_of(operand)}.values())


@v_args(inline=True)
class _Builder(Transformer[Token, Operand]):
    """Makes the tree while it is parsed: one method for each alternative of the grammar."""

    def text(self, token: Token) -> str:
        return str(token)[1:-1].replace("''", "'")

    def texts(self, *texts: str) -> list[str]:
        return list(texts)

    def literal_text(self, text: str) -> Operand:
        return Text(text)

    def whole_number(self, token: Token) -> Operand:
        return whole_number(str(token))

    def decimal_number(self, token: Token) -> Operand:
        return decimal_number(str(token))

    def true(self, _: Token) -> Operand:
        return Constant(True)

    def false(self, _: Token) -> Operand:
        return Constant(False)

    def null(self, _: Token) -> Operand:
        return Constant(None)

    def property(self, token: Token) -> Operand:
        return Property(str(token))

    def negative(self, of: Operand) -> Operand:
        return negative(of)

    def negation(self, _: Token, of: Operand) -> Operand:
        return Not(condition(of))

    def either(self, left: Operand, _: Token, right: Operand) -> Operand:
        first = left.parts if isinstance(left, Or) else (condition(left),)
        return Or((*first, condition(right)))

    def both(self, left: Operand, _: Token, right: Operand) -> Operand:
        first = left.parts if isinstance(left, And) else (condition(left),)
        return And((*first, condition(right)))

    def equal(self, left: Operand, right: Operand) -> Operand:
        return equal(left, right)

    def differs(self, left: Operand, right: Operand) -> Operand:
        return Not(equal(left, right))

    def is_null(self, of: Operand, *_: Token) -> Operand:
        return IsNull(of)

    def is_not_null(self, of: Operand, *_: Token) -> Operand:
        return Not(IsNull(of))

    def ordered(self, left: Operand, operator: Token, right: Operand) -> Operand:
        return ordered(str(operator), left, right)

    def between(self, value: Operand, _: Token, low: Operand, __: Token, high: Operand) -> Operand:
        return between(value, low, high)

    def not_between(self, value: Operand, *rest: Any) -> Operand:
        _, _, low, _, high = rest
        return not_between(value, low, high)

    def one_of(self, value: Operand, _: Token, texts: list[str]) -> Operand:
        return one_of(value, texts, negated=False)

    def none_of(self, value: Operand, _: Token, __: Token, texts: list[str]) -> Operand:
        return one_of(value, texts, negated=True)

    def search(self, of: Operand, kind: Token, text: str) -> Operand:
        return Search(SearchKind(str(kind).upper()), of, text, negated=False)

    def not_search(self, of: Operand, _: Token, kind: Token, text: str) -> Operand:
        return Search(SearchKind(str(kind).upper()), of, text, negated=True)

    def like(self, of: Operand, _: Token, pattern: str, *escape: Any) -> Operand:
        return like(of, pattern, escape[-1] if escape else None, negated=False)

    def not_like(self, of: Operand, _: Token, __: Token, pattern: str, *escape: Any) -> Operand:
        return like(of, pattern, escape[-1] if escape else None, negated=True)


@cache
def _parser() -> Lark:
    """Made with the first filter: a node's start should not wait 15 to 30 ms for it."""
    words = "\n    ".join(f"{each}.3: /{each}(?![a-z0-9_$])/i" for each in _WORDS)
    return Lark(_GRAMMAR % {"words": words}, parser="lalr", transformer=_Builder())
