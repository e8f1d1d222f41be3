"""The access file: what it says, and every fault named by identity and key, never by a token."""

import hashlib

import pytest

from tandemlog_server.node.access.access_file import AccessFileError, parse_access
from tandemlog_server.node.access.identities import NO_LIMITS, Right, digest_of

HASH = f"sha256:{hashlib.sha256(b'tl_secret').hexdigest()}"
GOOD = f"""
[[identity]]
name = "orders"
tokens = ["{HASH}"]
certificates = ["orders"]
read = ["orders-*", "prices"]
write = ["orders-?"]
consume = ["g*"]
limits = {{ calls = 200, bytes_per_s = 50000 }}

[[identity]]
name = "operator"
admin = true

[[identity]]
name = "n1"
node = "n1"
"""


def test_a_file_gives_identities_with_their_rights() -> None:
    access = parse_access(GOOD, "access.toml")
    orders, operator, n1 = access.identities
    assert access.of_token(digest_of("tl_secret")) is orders
    assert access.of_token(digest_of("tl_other")) is None
    assert access.of_certificate("orders") is orders
    assert orders.may(Right.READ, "orders-eu")
    assert orders.may(Right.READ, "prices")
    assert not orders.may(Right.READ, "orders")
    assert orders.may(Right.WRITE, "orders-1")
    assert not orders.may(Right.WRITE, "orders-12")
    assert orders.may(Right.CONSUME, "g1")
    assert orders.may_see("orders-1")
    assert not orders.may_see("others")
    assert (orders.limits.calls, orders.limits.bytes_per_s, orders.limits.streams) == (
        200,
        50000,
        0,
    )
    assert operator.admin
    assert operator.may(Right.WRITE, "anything")
    assert operator.limits is NO_LIMITS
    assert n1.node == "n1"
    assert not n1.may_see("orders-1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no [[identity]]"),
        ("identity = []", "it has no [[identity]]"),
        ("[[identity]\n", "is not TOML: "),
        ("a = " + "[" * 5_000, "is not TOML: "),
        ("a = " + "9" * 5_000, "is not TOML: "),
        ('[[identity]]\ntokens = []\n', "identity number 1: name: Field required"),
        ('[[identity]]\nname = "a b"\n', "identity 'a b': name: "),
        ('[[identity]]\nname = "a"\nreads = []\n', "reads: unknown key; valid: access_keys, admin"),
        ('[[identity]]\nname = "a"\nlimits = { x = 1 }\n', "limits.x: unknown key; valid: b"),
        ('[[identity]]\nname = "a"\nlimits = { calls = 0 }\n', "identity 'a': limits.calls: "),
        ('[[identity]]\nname = "a"\nadmin = "yes"\n', "identity 'a': admin: "),
        ('[[identity]]\nname = "a"\nread = ["a b"]\n', "identity 'a': read.0: "),
        ('[[identity]]\nname = "a"\nread = "x"\n', "identity 'a': read: "),
        ('[[identity]]\nname = "a"\n[[identity]]\nname = "a"\n', "two identities with the name"),
        ("identities = 1\n", "'identities': unknown key; valid: identity"),
        (
            f'[[identity]]\nname = "a"\ntokens = ["{HASH}"]\n'
            f'[[identity]]\nname = "b"\ntokens = ["{HASH}"]\n',
            "tokens: a token is in 'a' and 'b'",
        ),
        (
            '[[identity]]\nname = "a"\ncertificates = ["c"]\n'
            '[[identity]]\nname = "b"\ncertificates = ["c"]\n',
            "certificates: the certificate 'c' is in 'a' and 'b'",
        ),
    ],
)  # fmt: skip
def test_a_fault_names_the_file_the_identity_and_the_key(text: str, said: str) -> None:
    with pytest.raises(AccessFileError) as refused:
        parse_access(text, "access.toml")
    assert str(refused.value).startswith("access.toml")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("key", ["tokens", "certificates", "read", "name", "node", "limits"])
def test_a_fault_never_quotes_a_token_that_stands_in_a_wrong_place(key: str) -> None:
    text = f'[[identity]]\nname = "a"\n{key} = [["tl_secret"]]\n'
    text = text.replace('name = "a"\nname', "name")
    with pytest.raises(AccessFileError) as refused:
        parse_access(text, "access.toml")
    assert "tl_secret" not in str(refused.value)
    plain = '[[identity]]\nname = "a"\ntokens = ["tl_secret"]\n'
    with pytest.raises(AccessFileError, match=r"'a': tokens\.0: must be \"sha256:") as bad:
        parse_access(plain, "access.toml")
    assert "tl_secret" not in str(bad.value)


def test_many_faults_are_a_few_of_them_and_a_number() -> None:
    rows = "".join(f'[[identity]]\nname = "n{number}"\nx = 1\n' for number in range(9))
    with pytest.raises(AccessFileError, match="and 4 more"):
        parse_access(rows, "access.toml")
