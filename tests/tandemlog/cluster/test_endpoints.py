import pytest

from tandemlog.cluster.endpoints import own_address, parse_endpoints


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("a", ("a:10911",)),
        ("a:1, b:2,a:1", ("a:1", "b:2")),
        (["[::1]:5", "::1"], ("[::1]:5", "[::1]:10911")),
        ("unix:///run/node.sock", ("unix:///run/node.sock",)),
    ],
)
def test_endpoints(given: str | list[str], parsed: tuple[str, ...]) -> None:
    assert parse_endpoints(given) == parsed


@pytest.mark.parametrize("given", ["", " , ", ":5", "a:0", "a:70000", "a:x"])
def test_endpoints_that_are_none(given: str) -> None:
    with pytest.raises(ValueError, match="endpoint"):
        parse_endpoints(given)


async def test_own_address_towards_loopback() -> None:
    assert await own_address("127.0.0.1:10911") == "127.0.0.1"
    assert await own_address("no host:1") == "127.0.0.1"
