"""Writes certificates for TLS servers of tests. They last from 2026 for a century."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_START = datetime.datetime(2026, 1, 1)
_CA = x509.BasicConstraints(ca=True, path_length=None)
_LOOPBACK = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key.

    Attributes:
      name: Its common name.
      file: PEM file with both, for `SSLContext.load_cert_chain` and as a CA.
    """

    name: str
    file: Path
    _key: ec.EllipticCurvePrivateKey

    @property
    def subject(self) -> x509.Name:
        """Returns the name as certificates have it."""
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, self.name)])


def write(file: Path, name: str, issuer: Certificate | None = None) -> Certificate:
    """Writes a certificate of a server at 127.0.0.1, or of a CA if there is no issuer.

    It has one extension, and so no keyUsage.
    """
    made = Certificate(name, file, ec.generate_private_key(ec.SECP256R1()))
    signer = issuer or made
    certificate = (
        x509.CertificateBuilder(signer.subject, made.subject, made._key.public_key(), x509.random_serial_number())
        .not_valid_before(_START)
        .not_valid_after(_START + datetime.timedelta(days=36500))
        .add_extension(_LOOPBACK if issuer else _CA, critical=False)
        .sign(signer._key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file.write_bytes(certificate.public_bytes(pem) + made._key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return made
