"""What a certificate says, for people and programs: whose, until when, signed by whom."""

import datetime
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from .authority import CertificateError, cluster_of
from .owners import Owner, owner_of


def read_certificate(pem: bytes, what: str) -> x509.Certificate:
    """The first certificate of `pem`. Raises CertificateError, which names `what`."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise CertificateError(f"{what} is not a certificate in PEM: {error}") from error


def owner_in(certificate: x509.Certificate) -> Owner | None:
    """The owner that one of its URIs names."""
    owners = map(owner_of, _alternatives(certificate, x509.UniformResourceIdentifier))
    return next((owner for owner in owners if owner is not None), None)


def common_name(name: x509.Name) -> str:
    """The first one; the whole name where there is none."""
    names = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else name.rfc4514_string()


def described(certificate: x509.Certificate, now: datetime.datetime) -> dict[str, Any]:
    """One row of `tandemlog certs show`."""
    owner = owner_in(certificate)
    until = certificate.not_valid_after_utc
    return {
        "name": common_name(certificate.subject),
        "kind": str(owner.kind) if owner else "authority" if is_authority(certificate) else "-",
        "cluster": owner.cluster if owner else cluster_of(certificate),
        "hosts": ",".join(hosts_in(certificate)),
        "from": f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M}Z",
        "until": f"{until:%Y-%m-%d %H:%M}Z",
        "days_left": round((until - now).total_seconds() / 86_400, 1),
        "state": state_of(certificate, now),
        "issuer": common_name(certificate.issuer),
        "serial": f"{certificate.serial_number:x}",
        "sha256": certificate.fingerprint(hashes.SHA256()).hex(),
    }


def state_of(certificate: x509.Certificate, now: datetime.datetime) -> str:
    """valid, expired, or not yet valid."""
    if now > certificate.not_valid_after_utc:
        return "expired"
    return "not yet valid" if now < certificate.not_valid_before_utc else "valid"


def hosts_in(certificate: x509.Certificate) -> list[str]:
    """Names and addresses at which its owner is reached."""
    names = _alternatives(certificate, x509.DNSName)
    return names + [str(each) for each in _alternatives(certificate, x509.IPAddress)]


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign others."""
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return bool(basic.value.ca)


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority's key made the signature."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def fits_key(certificate: x509.Certificate, key_pem: bytes, what: str) -> bool:
    """Whether the key belongs to the certificate. Raises CertificateError, which names `what`."""
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{what} is not a private key in PEM: {error}") from error
    public = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key.public_key().public_bytes(*public) == certificate.public_key().public_bytes(*public)


def _alternatives(certificate: x509.Certificate, kind: Any) -> list[Any]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return list(names.value.get_values_for_type(kind))
