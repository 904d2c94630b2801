"""Keys and certificates of one control plane.

One authority signs the API server, every client, and webhooks. All are good for 30 days and lie in one private folder.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

_GOOD_FOR = timedelta(days=30)
_ADDRESSES = ("127.0.0.1", "10.0.0.1")
"""Where the API server is: for us, and as the Service `kubernetes`."""

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A certificate and its key."""

    cert_file: Path
    key_file: Path


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._key = _new_key()
        self._name = _subject("headrace-test-ca", ())
        can_sign = x509.BasicConstraints(ca=True, path_length=None)
        unsigned = self._unsigned(self._name, self._key).add_extension(can_sign, critical=True)
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(unsigned.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def server(self, file_name: str, names: Sequence[str]) -> Identity:
        """For a server on 127.0.0.1 that is also called `names`."""
        addresses = [x509.IPAddress(ipaddress.ip_address(each)) for each in _ADDRESSES]
        alternatives = x509.SubjectAlternativeName([*addresses, *map(x509.DNSName, names)])
        return self._issue(file_name, _subject("server", ()), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, file_name: str, user: str, groups: Sequence[str] = ()) -> Identity:
        """For a client that the API server takes for `user`, a member of `groups`."""
        return self._issue(file_name, _subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH)

    def signing_key(self, file_name: str) -> Path:
        """A key that signs tokens."""
        return self._keep(file_name, _new_key())

    def _issue(
        self, file_name: str, subject: x509.Name, usage: ObjectIdentifier, *extensions: x509.ExtensionType
    ) -> Identity:
        key = _new_key()
        unsigned = self._unsigned(subject, key)
        for extension in (x509.ExtendedKeyUsage([usage]), *extensions):
            unsigned = unsigned.add_extension(extension, critical=False)
        cert_file = self._folder / f"{file_name}.crt"
        cert_file.write_bytes(unsigned.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        return Identity(cert_file=cert_file, key_file=self._keep(file_name, key))

    def _unsigned(self, subject: x509.Name, key: Key) -> x509.CertificateBuilder:
        # A minute ago, for a clock that is stepped back a little meanwhile.
        since = datetime.now(UTC) - timedelta(minutes=1)
        builder = x509.CertificateBuilder(issuer_name=self._name, subject_name=subject, public_key=key.public_key())
        return (
            builder.serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(since + _GOOD_FOR)
        )

    def _keep(self, file_name: str, key: Key) -> Path:
        path = self._folder / f"{file_name}.key"
        path.touch(mode=0o600)
        # In the older form, whose public half the API server reads from the same file.
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
        return path


def _new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def _subject(user: str, groups: Sequence[str]) -> x509.Name:
    memberships = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*memberships, x509.NameAttribute(NameOID.COMMON_NAME, user)])
