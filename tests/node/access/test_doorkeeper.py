"""Who a caller is: tokens, certificates' names, both, neither; and after a new access file."""

import datetime

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from fakes.authority import Authority
from fakes.secured_node import access_text, token
from tandemlog_server.node.access.access_file import parse_access
from tandemlog_server.node.access.access_refusals import NotKnownError
from tandemlog_server.node.access.certificates import names_in_pem, names_of
from tandemlog_server.node.access.doorkeeper import Doorkeeper
from tandemlog_server.node.access.identities import Access, CertificateNames, certified_as

AUTHORITY = Authority()
FILE = access_text(
    orders={"read": ["orders"], "certificates": ["orders", "By Name"], "limits": {"calls": 2}},
    n1={"node": "n1"},
)


def header(name: str) -> str:
    return f"Bearer {token(name)}"


def keeper(text: str | None = FILE, *, required: bool = False) -> Doorkeeper:
    access = None if text is None else access_of(text)
    return Doorkeeper("test", monotonic=lambda: 0.0, access=access, certificates_required=required)


def access_of(text: str) -> Access:
    return parse_access(text, "access.toml")


def client(name: str, cluster: str = "test") -> bytes:
    return AUTHORITY.client(name, cluster).certificate


def node(name: str, cluster: str = "test") -> bytes:
    return AUTHORITY.node(name, cluster).certificate


def test_a_token_and_a_certificate_lead_to_their_identity() -> None:
    door = keeper()
    assert door.identify(header("orders"), None).identity.name == "orders"
    assert door.identify(f"bearer  {token('orders')} ", None).identity.name == "orders"
    assert door.identify("", client("orders")).identity.name == "orders"
    by_name = AUTHORITY.issue(common_name="By Name").certificate
    assert door.identify("", by_name).identity.name == "orders"


def test_a_node_is_known_by_its_certificate_without_a_row_of_its_own() -> None:
    who = keeper().identify("", node("n7"))
    assert (who.identity.name, who.nodes) == ("node/n7", frozenset({"n7"}))
    assert not who.identity.may_see("orders")
    own = keeper().identify("", node("n1"))
    # it has other rights, if any
    assert (own.identity.name, own.nodes) == ("n1", frozenset({"n1"}))


def test_all_proofs_of_a_node_count() -> None:
    door = keeper()
    assert door.identify(header("n1"), None).nodes == {"n1"}
    assert door.identify(header("n1"), node("n1")).nodes == {"n1"}
    assert door.identify(header("n1"), node("n2")).nodes == {"n1", "n2"}
    assert door.identify(header("orders"), node("n2")).nodes == {"n2"}
    assert "cluster 'x'" in door.identify(header("n1"), node("n1", "x")).proof_fault


@pytest.mark.parametrize(
    ("authorization", "certificate", "said"),
    [
        ("", None, "send the token of an identity"),
        ("Bearer wrong", None, "the token is not one of the access file"),
        ("Bearer wrong", client("orders"), "the token is not one of the access file"),
        ("Basic b3JkZXJz", None, "the authorization must be: Bearer"),
        ("Bearer", None, "the authorization must be: Bearer"),
        ("", client("others"), "access file has the certificate 'others'"),
        ("", client("orders", "x"), "of the cluster 'x', and this is 'test'"),
        ("", node("n1", "x"), "of the cluster 'x', and this is 'test'"),
        ("", AUTHORITY.issue().certificate, "names no one"),
        ("", AUTHORITY.issue("tandemlog://test/robot/x").certificate, "tandemlog://test/node/ID"),
        ("", AUTHORITY.issue("tandemlog://test/client/a/b").certificate, "must have the form"),
        ("", b"-----BEGIN nothing", "cannot be read"),
    ],
)  # fmt: skip
def test_who_is_not_known_hears_why(
    authorization: str, certificate: bytes | None, said: str
) -> None:
    with pytest.raises(NotKnownError) as refused:
        keeper().identify(authorization, certificate)
    assert said in str(refused.value)
    assert "wrong" not in str(refused.value)


def test_required_certificates_alone_let_every_client_of_the_cluster_do_everything() -> None:
    door = keeper(None, required=True)
    assert door.active
    assert door.identify("", client("any")).identity.admin
    who = door.identify("", node("n1"))
    assert who.identity.admin
    assert who.nodes == {"n1"}
    assert door.identify("Bearer of no meaning", client("any")).nodes == frozenset()
    for certificate in (None, client("any", "x"), AUTHORITY.issue().certificate):
        with pytest.raises(NotKnownError):
            door.identify("", certificate)


def test_without_a_file_and_required_certificates_no_one_is_asked() -> None:
    assert not keeper(None).active


def test_a_new_access_file_counts_from_the_next_request_on() -> None:
    door = keeper()
    who = door.identify(header("orders"), None)
    door.renew(who)
    door.replace_access(access_of(FILE.replace('["orders"]', '["prices"]', 1)))
    door.renew(who)
    assert who.identity.may_see("prices")
    assert not who.identity.may_see("orders")
    door.replace_access(access_of(access_text(other={})))
    with pytest.raises(NotKnownError, match="may have been revoked"):
        door.renew(who)


def test_an_identity_counts_its_calls_over_all_connections_and_files() -> None:
    door = keeper()
    callers = [door.enter(f"ipv4:127.0.0.1:{port}", stream=False) for port in range(2)]
    for caller in callers:
        door.known(caller, door.identify(header("orders"), None), "Pull", stream=False)
        door.check(caller, stream=False)
    third = door.enter("ipv4:127.0.0.1:9", stream=False)
    door.known(third, door.identify(header("orders"), None), "Pull", stream=False)
    with pytest.raises(Exception, match=r"identity 'orders' has 3 calls"):
        door.check(third, stream=False)
    door.replace_access(access_of(FILE.replace("calls = 2", "calls = 3")))
    door.check(third, stream=False)
    for caller in (*callers, third):
        door.leave(caller, stream=False)
    assert not door._connections


def test_a_certificate_with_two_lists_of_names_names_no_one() -> None:
    """Its common name must not count in the place of names that cannot be read."""

    class Twice:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "operator")])

        @property
        def extensions(self) -> x509.Extensions:
            raise x509.DuplicateExtension("two", ExtensionOID.SUBJECT_ALTERNATIVE_NAME)

    with pytest.raises(ValueError, match="two"):
        names_of(Twice())  # type: ignore[arg-type]


def test_a_certificate_that_expires_is_not_known_any_more() -> None:
    """A connection may be older than TLS's look at it."""
    times = [datetime.datetime.now(datetime.UTC)]
    pem = AUTHORITY.client("orders").certificate
    end = x509.load_pem_x509_certificate(pem).not_valid_after_utc

    def door(text: str | None) -> Doorkeeper:
        access = None if text is None else access_of(text)
        required = text is None
        return Doorkeeper(
            "test",
            monotonic=lambda: 0.0,
            now=lambda: times[0],
            access=access,
            certificates_required=required,
        )

    for each in (door(FILE), door(None)):
        times[0] = end - datetime.timedelta(seconds=1)
        who = each.identify("", pem)
        by_token = each.identify(header("orders"), pem)
        each.renew(who)
        times[0] = end
        for attempt in (lambda: each.renew(who), lambda: each.identify("", pem)):  # noqa: B023
            with pytest.raises(NotKnownError, match="has expired"):
                attempt()
        if each._access is not None:  # the token is still good, but is no node's any more
            each.renew(by_token)
            assert "has expired" in by_token.proof_fault


def test_the_names_in_a_certificate() -> None:
    pair = AUTHORITY.issue("https://x", "tandemlog://c/node/n1", common_name="N")
    names = names_in_pem(pair.certificate)
    assert names == CertificateNames(("tandemlog://c/node/n1",), "N")
    assert certified_as(names, "c").node == "n1"
    assert certified_as(CertificateNames((), "N"), "c").client == "N"
    both = CertificateNames(("tandemlog://x/node/n1", "tandemlog://c/client/a"), "N")
    assert certified_as(both, "c").client == "a"


def test_a_pass_stands_for_a_certificate() -> None:
    door = keeper()
    lent = f"Bearer {door.give_pass(client('orders'))}"
    door.check_token(lent)
    who = door.identify(lent, node("n7"))
    assert who.identity.name == "orders"
    assert who.nodes == frozenset()
    door.replace_access(access_of(access_text(n1={"node": "n1"})))
    with pytest.raises(NotKnownError, match="has the certificate"):
        door.identify(lent, node("n7"))
    with pytest.raises(NotKnownError):
        door.renew(who)


def test_a_pass_that_was_taken_is_unknown() -> None:
    door = keeper()
    lent = door.give_pass(client("orders"))
    door.take_pass(lent)
    door.take_pass(lent)
    for call in (door.check_token, lambda header: door.identify(header, None)):
        with pytest.raises(NotKnownError, match="open its own console"):
            call(f"Bearer {lent}")


def test_a_pass_counts_where_certificates_alone_do() -> None:
    door = keeper(None, required=True)
    lent = f"Bearer {door.give_pass(client('orders'))}"
    assert door.identify(lent, node("n1")).identity.name == "orders"
    assert door.identify("Bearer other", node("n1")).identity.name == "node/n1"


def test_a_pass_of_another_node_is_not_the_certificate_that_brings_it() -> None:
    lent = f"Bearer {keeper(None, required=True).give_pass(client('orders'))}"
    for door in (keeper(None, required=True), keeper()):
        with pytest.raises(NotKnownError, match="open its own console"):
            door.identify(lent, node("n1"))
        with pytest.raises(NotKnownError, match="open its own console"):
            door.check_token(lent)
