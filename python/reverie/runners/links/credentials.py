"""Credentials for the shards of one run: a token and a certificate authority made for it, without configuration.

They are given only to the run's own roles, are held in memory only, and are useless after the run.
"""

from __future__ import annotations

import datetime
import importlib.util
import secrets
from dataclasses import dataclass
from typing import Any

from reverie.tls import ClientTLS, ServerTLS

_VALID = datetime.timedelta(days=365)
_SKEW = datetime.timedelta(days=1)
"""Clocks of other machines may be behind this one's."""


@dataclass(frozen=True)
class RunCredentials:
    """A token, and an authority that signs the certificate of each shard."""

    token: str
    ca: bytes
    """The authority's certificate, PEM."""
    _authority: Any
    _key: Any

    @classmethod
    def make(cls) -> RunCredentials:
        """New credentials. Raises ImportError, which names the extra, if `cryptography` is not installed."""
        require_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"reverie run {secrets.token_hex(4)}")])
        builder = _certificate(name, name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        certificate = _signed(builder, key)
        return cls(secrets.token_urlsafe(32), _pem(certificate), certificate, key)

    def server(self, name: str) -> ServerTLS:
        """The server side of the shard with this name: a certificate for this name only, and its key."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = _certificate(subject, self._authority.subject, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return ServerTLS(_pem(_signed(builder, self._key)), secret)

    def client(self, name: str) -> ClientTLS:
        """The client side for the shard with this name: clients verify the name, whatever the shard's address."""
        return ClientTLS(ca=self.ca, server_name=name)


def require_cryptography() -> None:
    """Raises ImportError, which names the extra, if `cryptography` is not installed."""
    if importlib.util.find_spec("cryptography") is None:
        raise ImportError('cryptography is not installed: pip install "reverie[ray]"')


def _certificate(subject: Any, issuer: Any, public_key: Any) -> Any:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
    )


def _signed(builder: Any, key: Any) -> Any:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    pem: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return pem
