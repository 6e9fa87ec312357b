"""The figures of a server as its page shows them, read from its HTTP port."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, Literal
from urllib.parse import urlsplit

from reverie import tls as pem
from reverie.errors import ProtocolError, UnauthenticatedError, UnavailableError
from reverie.tls import ClientTLS

SCHEMES = ("http", "https")


def is_url(address: str) -> bool:
    """Whether an address is that of a page, and not `HOST:PORT`."""
    return address.partition("://")[0].lower() in SCHEMES


class PageReader:
    """Reads the JSON of a server's HTTP port, over one connection. Not thread-safe."""

    def __init__(self, url: str, token: str | None, tls: ClientTLS | None, timeout: float) -> None:
        """Checks the address; ValueError for a malformed one. Connects at the first read."""
        place = urlsplit(url)
        try:
            host, port = place.hostname, place.port
        except ValueError:
            host = port = None
        if host is None or place.path not in ("", "/") or place.query or place.fragment or place.username:
            raise ValueError(f"{url!r} is not the address of a page: write http://HOST:PORT/")
        if tls is not None and place.scheme == "http":
            raise ValueError(f"{url} has no TLS: write https://, or leave the --tls flags out")
        self.host, self.port = host, port or (443 if place.scheme == "https" else 80)
        self._url, self._token = url, token
        context = ssl.create_default_context() if place.scheme == "https" else None
        if context is not None and tls is not None:
            _trust(context, tls)
        self._connection: http.client.HTTPConnection
        if context is None:
            self._connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout or None)
        else:
            name = self.host if tls is None or tls.server_name is None else tls.server_name
            self._connection = _SecureConnection(self.host, self.port, timeout or None, context, name)

    def read(self, path: Literal["info", "why", "run"]) -> Any:
        """The document at `/api/PATH`.

        Raises:
            UnauthenticatedError: the server requires another token, or its certificate is not trusted.
            UnavailableError: it does not respond.
            ProtocolError: it responds, and not as a server of this package.
        """
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        try:
            self._connection.request("GET", f"/api/{path}", headers=headers)
            response = self._connection.getresponse()
            status, body = response.status, response.read()
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise UnauthenticatedError(f"{self._url}: {error.verify_message}") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()  # the next read connects again
            raise UnavailableError(f"{self._url} does not respond: {str(error) or type(error).__name__}") from None
        try:
            document = json.loads(body)
            reason = document["error"] if status != 200 else ""
        except (ValueError, KeyError, TypeError):
            raise ProtocolError(
                f"{self._url} is not the page of a server: /api/{path} has no JSON ({status})"
            ) from None
        if status == 401:
            raise UnauthenticatedError(f"{self._url}: {reason}")
        if status != 200:
            raise UnavailableError(f"{self._url}: {reason}")
        return document

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()


def _trust(context: ssl.SSLContext, tls: ClientTLS) -> None:
    if tls.ca is not None:
        authorities = pem.read("ca", tls.ca).decode()
        context.load_verify_locations(cadata=authorities)
    if tls.cert is not None and tls.key is not None:
        if isinstance(tls.cert, bytes) or isinstance(tls.key, bytes):
            raise ValueError("the client certificate of a page must be a file")
        context.load_cert_chain(tls.cert, tls.key)


class _SecureConnection(http.client.HTTPConnection):
    """TLS with a server whose certificate may have another name than its host."""

    def __init__(self, host: str, port: int, timeout: float | None, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self._context, self._name = context, name

    def connect(self) -> None:
        """Connect, and check the certificate."""
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)


def look(page: PageReader) -> tuple[dict[str, Any], float]:
    """The figures of the page, and the server's clock: seconds since its start."""
    info, why, run = page.read("info"), page.read("why"), page.read("run")
    return figures(info, why, run), info["uptime_seconds"]


def figures(info: dict[str, Any], why: dict[str, Any], run: dict[str, Any] | None) -> dict[str, Any]:
    """The documents of `/api/info`, `/api/why` and `/api/run` under the names that `--json` prints."""
    waits = {of["table"]: of for of in why["tables"]}
    clients = info["clients"] or {}
    return {
        "transport": "http",
        "reason": "the address is that of a page",
        "size_bytes": info["bytes"],
        "max_bytes": info["max_bytes"],
        "network_bytes": info["network_bytes"] or 0,
        "max_network_bytes": info["max_network_bytes"],
        "max_memory": info["max_memory"],
        "max_connections": clients.get("max"),
        "ready": info["ready"],
        "trouble": info["trouble"],
        "uptime_seconds": info["uptime_seconds"],
        "checkpoint_age_seconds": info["checkpoint_age_seconds"],
        "clients": info["clients"],
        "run": run,
        "journal": info["journal"],
        "disk": info["disk"],
        "tables": {table["name"]: _table(table, waits[table["name"]]) for table in info["tables"]},
    }


def _table(table: dict[str, Any], why: dict[str, Any]) -> dict[str, Any]:
    insert, sample = why["insert"], why["sample"]
    return {
        "size": table["size"],
        "max_size": table["max_size"],
        "size_bytes": table["bytes"],
        "max_bytes": table["max_bytes"],
        "episodes": table["episodes"],
        "inserts": table["inserts"],
        "samples": table["samples"],
        "deletes": table["deletes"],
        "leased": table["unacknowledged_samples"],
        "updates": table["priority_updates"],
        "stale_updates": table["stale_updates"],
        "samples_per_insert": table["limiter"]["samples_per_insert"],
        "waiting_inserts": insert["waiting"],
        "waiting_samples": sample["waiting"],
        "insert_reason": insert["reason"],
        "sample_reason": sample["reason"],
        "stuck": why["stuck"],
        "why": why["text"],
    }
