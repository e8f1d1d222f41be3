"""TLS between the doors of two nodes: the master shows its certificate, this node its own where the
master requires one."""

import ssl
from pathlib import Path

import pytest

from helpers.made_certificates import Authority
from tandemlog_server.node.certs.owners import OwnerKind
from tandemlog_server.node.remoting.cluster.link_tls import LinkTls
from tandemlog_server.node.settings.security_sections import TlsSection


def section(authority: Authority, name: str = "n0") -> TlsSection:
    certificate = authority.make(OwnerKind.NODE, name, ("127.0.0.1",))
    return TlsSection(
        ca_file=authority.ca_file,
        cert_file=str(certificate),
        key_file=str(certificate.with_suffix(".key")),
    )


def shaken(client: ssl.SSLContext, server: ssl.SSLContext) -> bytes | None:
    """The certificate that the server sees of the client, once they have found each other. Raises
    SSLError if they do not."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    called = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (calling, called):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert calling.getpeercert()
    return called.getpeercert(binary_form=True)


def serving(tls: TlsSection) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.cert_file, tls.key_file)
    context.load_verify_locations(tls.ca_file)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def test_a_node_without_tls_has_links_without() -> None:
    assert LinkTls(TlsSection()).context() is None


def test_the_master_is_known_and_is_shown_no_certificate(tmp_path: Path) -> None:
    tls = section(Authority(tmp_path))
    context = LinkTls(tls).context()
    assert context is not None
    assert shaken(context, serving(tls)) is None


def test_a_master_that_requires_certificates_is_shown_one(tmp_path: Path) -> None:
    tls = section(Authority(tmp_path)).model_copy(update={"client_certificates": "required"})
    context, serves = LinkTls(tls).context(), serving(tls)
    serves.verify_mode = ssl.CERT_REQUIRED
    assert context is not None
    assert shaken(context, serves)


def test_a_master_of_another_authority_is_refused(tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
    context = LinkTls(section(Authority(tmp_path / "mine"))).context()
    assert context is not None
    with pytest.raises(ssl.SSLError):
        shaken(context, serving(section(Authority(tmp_path / "theirs"))))


def test_a_replaced_authority_counts_for_the_next_link(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    links = LinkTls(section(authority))
    fresh = section(authority.replaced(), "n1")
    context = links.context()
    assert context is not None
    assert shaken(context, serving(fresh)) is None


def test_an_authority_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    tls = section(Authority(tmp_path))
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(OSError, match="No such file"):
        LinkTls(tls).context()
