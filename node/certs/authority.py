"""A small authority: one self-signed certificate, which signs those of nodes and clients.

    authority (CA, path length 0) ──signs──▶ node         serves and calls: server and client use
                                  ──signs──▶ coordinator  the same
                                  ──signs──▶ client       calls: client use only

Keys are ECDSA on P-256: a handshake with one costs a tenth of one with RSA. Certificates are valid
from five minutes before they are made, for machines whose clocks are behind, and never longer than
the authority that signs them. Nothing here touches a file.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .owners import Owner, OwnerKind

CLOCKS_DIFFER = datetime.timedelta(minutes=5)


class CertificateError(Exception):
    """Certificates that cannot be made or read; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


def new_authority(cluster: str, days: float, now: datetime.datetime) -> Pair:
    """An authority for `cluster`, valid for `days`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster),
            x509.NameAttribute(NameOID.COMMON_NAME, f"tandemlog authority of {cluster}"[:64]),
        ]
    )
    certificate = (
        _begun(name, name, key.public_key(), now, now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def issue(
    authority: Pair, owner: Owner, hosts: Sequence[str], days: float, now: datetime.datetime
) -> Pair:
    """A new key for `owner`, and its certificate. `hosts` are the names and addresses at which it
    is reached; a server needs one at least. Raises CertificateError."""
    if owner.kind is not OwnerKind.CLIENT and not hosts:
        raise CertificateError(
            f"{owner.kind} {owner.name}: a certificate needs the names or addresses at which it is "
            "reached; callers compare them with the address that they use"
        )
    signer, signing_key = read_authority(authority)
    if signer.not_valid_after_utc <= now:
        raise CertificateError(
            f"the authority expired at {signer.not_valid_after_utc:%Y-%m-%d %H:%M} UTC: make a new "
            "one with `tandemlog certs authority --force`, and all certificates after it"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, owner.cluster),
            x509.NameAttribute(NameOID.COMMON_NAME, owner.name),
        ]
    )
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(owner.uri)]
    names += [_host(each) for each in dict.fromkeys(hosts)]
    until = min(now + datetime.timedelta(days=days), signer.not_valid_after_utc)
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if owner.kind is not OwnerKind.CLIENT:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
    certificate = (
        _begun(subject, signer.subject, key.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()),
            critical=False,
        )
        .sign(signing_key, hashes.SHA256())
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def read_authority(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The two of `pair`. Raises CertificateError if they are not an authority's."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise CertificateError(f"not the certificate and key of an authority: {error}") from error
    if not basic.value.ca:
        raise CertificateError("not an authority: its certificate may not sign others")
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the authority's key is not one for elliptic curves")
    if key.public_key() != certificate.public_key():
        raise CertificateError("the authority's key does not fit its certificate")
    return certificate, key


def cluster_of(certificate: x509.Certificate) -> str:
    """The cluster that an authority is for: its organization; empty if it names none."""
    names = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(names[0].value) if names else ""


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, until) - CLOCKS_DIFFER)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        pass
    if not text or not text.isascii() or any(each in text for each in " /:,"):
        raise CertificateError(
            f"host {text!r}: give a name or an IP address, without scheme and port"
        )
    return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
