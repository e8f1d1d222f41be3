import pytest

from tandemlog.format.filter.parser import parse
from tandemlog.format.filter.weight import weight


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a > 5", 5),
        ("a > 5 AND NOT (b = 'x') OR c IS NULL", 13),
        ("a IN ('x', 'y')", 5),
        (f"a IN ({', '.join(repr(str(n)) for n in range(160))})", 15),
        ("a LIKE 'e%'", 9),
        (f"a LIKE '{'_' * 320}'", 29),
        ("TRUE", 1),
    ],
)
def test_it_grows_with_the_comparisons(text: str, expected: int) -> None:
    assert weight(parse(text)) == expected


def test_a_between_in_a_between_counts_once() -> None:
    text = "a"
    for _ in range(20):
        text = f"-({text} BETWEEN 1 AND 2)"
    assert weight(parse(f"{text} IS NULL")) == 1 + 4 + 20 * 8
