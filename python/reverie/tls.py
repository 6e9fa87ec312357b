"""Certificates that a server and a client show, and that they trust. PEM, as bytes or as the path of a file."""

from __future__ import annotations

import dataclasses
from os import PathLike

__all__ = ["ClientTLS", "Pem", "ServerTLS"]

#: PEM: the bytes, or the path of a file, which is read when a server or a client is made.
Pem = bytes | str | PathLike[str]


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTLS:
    """The certificate that a server presents, and the certificates that it requires of clients."""

    cert: Pem
    """The server's certificate, followed by the intermediate certificates up to its authority."""
    key: Pem
    """The certificate's private key."""
    client_ca: Pem | None = None
    """Clients must present a certificate that these authorities signed; None requires no certificate."""

    def read(self) -> tuple[tuple[bytes, bytes], bytes | None]:
        """The bytes of the certificate and its key, and those of `client_ca`.

        Raises:
            OSError: for a file that cannot be read.
            ValueError: the content is not PEM.
        """
        identity = (read("certificate", self.cert), read("key", self.key))
        return identity, None if self.client_ca is None else read("client_ca", self.client_ca)


@dataclasses.dataclass(frozen=True, slots=True)
class ClientTLS:
    """The authorities that a client trusts, and its own certificate."""

    ca: Pem | None = None
    """Authorities that may sign the server's certificate; None trusts those of the system."""
    cert: Pem | None = None
    """The client's own certificate, where the server requires one; needs `key`."""
    key: Pem | None = None
    """The private key of `cert`."""
    server_name: str | None = None
    """The name that the server's certificate must have; None takes the host from the server's address."""

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key belong together: give both or neither")


def read(name: str, pem: Pem) -> bytes:
    """The bytes of a certificate or a key.

    Raises:
        OSError: for a file that cannot be read.
        ValueError: the content is not PEM.
    """
    from pathlib import Path

    content = pem if isinstance(pem, bytes) else Path(pem).read_bytes()
    if b"-----BEGIN" not in content:
        given = "other bytes" if isinstance(pem, bytes) else f"the file '{Path(pem)}', which is not PEM"
        raise ValueError(f"{name} must be PEM (-----BEGIN ...), got {given}")
    return content
