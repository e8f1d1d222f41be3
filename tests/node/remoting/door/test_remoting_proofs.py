"""Signatures of RocketMQ's clients, against values of the reference formula."""

import base64
import hashlib
import hmac
import time

import pytest

from tandemlog_server.node.access.access_file import AccessFileError, parse_access
from tandemlog_server.node.access.access_refusals import NotKnownError
from tandemlog_server.node.access.doorkeeper import Doorkeeper
from tandemlog_server.node.remoting.door.remoting_proofs import signature_of, signed_by, who_signed
from tandemlog_server.rocketmq.clients.handed_on import HANDED_ON
from tandemlog_server.rocketmq.wire.remoting import Command

FILE = """
[[identity]]
name = "orders"
write = ["orders"]
access_keys = [{ key = "RocketMQ", secret = "12345678" }]
"""
FIELDS = {"topic": "orders", "AccessKey": "RocketMQ", "a": "1", "Signature": "?"}


def keeper(text: str = FILE, *, certificates_required: bool = False) -> Doorkeeper:
    return Doorkeeper(
        "c",
        monotonic=time.monotonic,
        access=parse_access(text, "access.toml"),
        certificates_required=certificates_required,
    )


def test_a_signature_is_that_of_the_values_by_their_keys_and_the_body() -> None:
    text = b"RocketMQ" + b"1" + b"orders" + b"body"
    expected = base64.b64encode(hmac.new(b"12345678", text, hashlib.sha1).digest()).decode()
    assert signature_of("12345678", FIELDS, b"body") == expected
    # worked out once by openssl: printf RocketMQ1ordersbody | openssl dgst -sha1 -hmac 12345678
    assert expected == "EEAM+Dv8nGqOXh/lGhkAPiWc5/I="
    assert signed_by("12345678", {**FIELDS, "Signature": expected}, b"body")
    assert not signed_by("12345678", {**FIELDS, "Signature": expected}, b"bodY")
    assert not signed_by("12345679", {**FIELDS, "Signature": expected}, b"body")
    assert not signed_by("12345678", {**FIELDS, "Signature": "\u00e9"}, b"body")


def test_an_older_client_leaves_the_mark_of_a_query_out() -> None:
    old = signature_of("12345678", FIELDS, b"")
    marked = {**FIELDS, "_UNIQUE_KEY_QUERY": "true", "Signature": old}
    assert signed_by("12345678", marked, b"")
    new = signature_of("12345678", marked, b"")
    assert new != old
    assert signed_by("12345678", {**marked, "Signature": new}, b"")


def test_who_signed_is_the_identity_of_the_key() -> None:
    signed = {**FIELDS, "Signature": signature_of("12345678", FIELDS, b"x")}
    who = who_signed(keeper(), Command(310, fields=signed, body=b"x"), None)
    assert (who.identity.name, who.access_key) == ("orders", "RocketMQ")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "this node has to know who calls: give the client the access key"),
        ({"AccessKey": "", "Signature": "abc"}, "this node has to know who calls"),
        ({"AccessKey": "other", "Signature": "abc"}, "the access key is not one of"),
        ({"AccessKey": "RocketMQ"}, "the client has another secret"),
        ({"AccessKey": "RocketMQ", "Signature": "abc"}, "the client has another secret"),
    ],
)
def test_a_stranger_is_told_what_it_lacks(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(NotKnownError, match=reason) as refused:
        who_signed(keeper(), Command(310, fields=fields), None)
    assert "12345678" not in str(refused.value)


def test_where_certificates_are_required_a_key_alone_proves_nothing() -> None:
    signed = {**FIELDS, "Signature": signature_of("12345678", FIELDS, b"")}
    with pytest.raises(NotKnownError, match="show a client certificate"):
        who_signed(keeper(certificates_required=True), Command(310, fields=signed), None)


def test_the_certificate_of_a_node_that_hands_on_lends_no_rights() -> None:
    door, certificate = keeper(certificates_required=True), b"of a node"
    with pytest.raises(NotKnownError, match="this node has to know who calls"):
        who_signed(door, Command(310, flag=HANDED_ON), certificate)
    signed = {**FIELDS, "Signature": signature_of("12345678", FIELDS, b"")}
    who = who_signed(door, Command(310, flag=HANDED_ON, fields=signed), certificate)
    assert (who.identity.name, who.certificate, who.nodes) == ("orders", None, frozenset())


def test_a_key_that_was_taken_out_is_not_valid_any_more() -> None:
    door = keeper()
    signed = {**FIELDS, "Signature": signature_of("12345678", FIELDS, b"")}
    who = who_signed(door, Command(310, fields=signed), None)
    door.replace_access(parse_access('[[identity]]\nname = "orders"\n', "access.toml"))
    with pytest.raises(NotKnownError, match="the access key is not one of"):
        door.renew(who)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('access_keys = [{ key = "k" }]', "access_keys.0.secret: Field required"),
        ('access_keys = [{ key = "k", secret = "geheim" }]', "must have 8 to 256 printable"),
        ('access_keys = [{ key = "k", secret = "12345678", x = 1 }]', "unknown key; valid: key, s"),
        (
            'access_keys = [{ key = "k", secret = "12345678" }, { key = "k", secret="12345679" }]',
            "access_keys: the access key 'k' is in 'a' twice",
        ),
    ],
)
def test_a_fault_of_the_file_never_shows_a_secret(row: str, reason: str) -> None:
    with pytest.raises(AccessFileError) as refused:
        parse_access(f'[[identity]]\nname = "a"\n{row}\n', "access.toml")
    assert reason in str(refused.value)
    assert "geheim" not in str(refused.value)
    assert "12345678" not in str(refused.value)
