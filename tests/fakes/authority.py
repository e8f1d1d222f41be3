"""A certificate authority in memory, and whatever certificates a test wants of it."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Each file is replaced as a whole, as tools that renew certificates do."""
        folder.mkdir(exist_ok=True)
        paths = folder / f"{name}.pem", folder / f"{name}.key"
        for path, content in zip(paths, (self.certificate, self.key), strict=True):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(content)
            fresh.replace(path)
        return paths


class Authority:
    """See the module."""

    def __init__(self, name: str = "test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + 10 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = made.public_bytes(Encoding.PEM)

    def write(self, folder: Path, name: str = "ca.pem") -> Path:
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_bytes(self.pem)
        return path

    def issue(
        self,
        *uris: str,
        common_name: str = "",
        begins: datetime.timedelta = -DAY,
        ends: datetime.timedelta = DAY,
    ) -> Pair:
        """A certificate for localhost with these URIs; it is valid from now + `begins` on."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            *map(x509.UniformResourceIdentifier, uris),
        ]
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else []
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        return Pair(made.public_bytes(Encoding.PEM), key.private_bytes(*form))

    def node(self, node_id: str, cluster: str = "test") -> Pair:
        return self.issue(f"tandemlog://{cluster}/node/{node_id}")

    def client(self, name: str, cluster: str = "test") -> Pair:
        return self.issue(f"tandemlog://{cluster}/client/{name}")
