"""What is in certificates: the names that they give, and whether a node's files fit together.

A certificate that a client shows has been checked by TLS already: signed by an authority of
`ca_file`, and valid when the connection began. Here only its names and its end are read. The
node's own files are checked before they are used, since TLS would say of a bad one only that a
handshake has failed.

The library is loaded with the first certificate: a node without TLS starts without it.
"""

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandemlog.lazy import lazy

from .identities import SCHEME, CertificateNames

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509 import oid
else:
    x509 = lazy("cryptography.x509")
    serialization = lazy("cryptography.hazmat.primitives.serialization")
    oid = lazy("cryptography.x509.oid")


class CertificateFileError(ValueError):
    """Files with which TLS cannot be served; the message names the file."""


def names_of(certificate: "x509.Certificate") -> CertificateNames:
    """The URIs of tandemlog and the common name in `certificate`."""
    try:
        extension = certificate.extensions.get_extension_for_oid(
            oid.ExtensionOID.SUBJECT_ALTERNATIVE_NAME
        )
        assert isinstance(extension.value, x509.SubjectAlternativeName)
        uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise ValueError(str(error)) from None
    common_names = certificate.subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    common_name = str(common_names[0].value) if common_names else ""
    ours = tuple(each for each in uris if each.startswith(SCHEME))
    return CertificateNames(ours, common_name, certificate.not_valid_after_utc)


def names_in_pem(pem: bytes) -> CertificateNames:
    """Of the first certificate in `pem`. Raises ValueError if there is none."""
    return names_of(x509.load_pem_x509_certificate(pem))


def names_in_der(der: bytes) -> CertificateNames:
    """Of a certificate as TLS carries it. Raises ValueError if `der` is not a certificate."""
    return names_of(x509.load_der_x509_certificate(der))


def check_pair(
    certificate: tuple[str, bytes], key: tuple[str, bytes], now: datetime.datetime
) -> datetime.datetime:
    """When the certificate expires, if the key fits it and it is valid `now`. Each file is its name
    and its content. Raises CertificateFileError."""
    name, content = certificate
    leaf = _certificates(name, content)[0]
    key_name, key_content = key
    try:
        private = serialization.load_pem_private_key(key_content, password=None)
    except TypeError:
        raise CertificateFileError(
            f"{key_name} is protected by a password, which a node cannot be asked for; write the "
            "key without one"
        ) from None
    except ValueError:
        raise CertificateFileError(f"{key_name} has no private key in PEM") from None
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    if private.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise CertificateFileError(
            f"the key in {key_name} does not fit the certificate in {name}: they are not of one "
            "pair"
        )
    _check_time(name, leaf, now)
    return leaf.not_valid_after_utc


def check_authorities(name: str, content: bytes, now: datetime.datetime) -> None:
    """Raises CertificateFileError unless the file has a certificate that is valid `now`."""
    authorities = _certificates(name, content)
    if all(each.not_valid_after_utc <= now for each in authorities):
        _check_time(name, authorities[0], now)


def _certificates(name: str, content: bytes) -> Sequence["x509.Certificate"]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise CertificateFileError(f"{name} has no certificate in PEM") from None


def _check_time(name: str, certificate: "x509.Certificate", now: datetime.datetime) -> None:
    if certificate.not_valid_after_utc <= now:
        raise CertificateFileError(
            f"the certificate in {name} expired on {_date(certificate.not_valid_after_utc)}"
        )
    if certificate.not_valid_before_utc > now:
        raise CertificateFileError(
            f"the certificate in {name} is valid from {_date(certificate.not_valid_before_utc)} "
            "on; is this machine's clock right?"
        )


def _date(when: datetime.datetime) -> str:
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")
