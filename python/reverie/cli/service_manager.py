"""Notifies the service manager that started this process: systemd, by the datagrams of sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Mapping

_LOG = logging.getLogger("reverie")


class ServiceManager:
    """The service manager; all calls do nothing where there is none (`NOTIFY_SOCKET` is not set).

    A service manager with a watchdog (`WATCHDOG_USEC`) kills a service that does not report in time. A notification
    that cannot be sent is logged once; the process goes on.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = environment.get("WATCHDOG_USEC", "")
        is_watched = bool(self._address) and ours and microseconds.isdecimal() and int(microseconds) > 0
        self.watchdog_seconds = int(microseconds) / 1e6 if is_watched else None
        """The longest time between two calls of `alive`; None without a watchdog."""
        self._next = 0.0
        self._failed = False

    @property
    def is_due(self) -> bool:
        """Whether `alive` is to be called now: three times within the watchdog's time."""
        return self.watchdog_seconds is not None and time.monotonic() >= self._next

    def ready(self, status: str) -> None:
        """The service has started; `status` is a line for people."""
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """The service works."""
        if self.watchdog_seconds is not None:
            self._next = time.monotonic() + self.watchdog_seconds / 3
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The service stops."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if sys.platform == "win32" or not self._address:
            return
        # "@" is the null byte of an abstract address.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                # A service manager that reads nothing must not block the service.
                sender.setblocking(False)
                sender.sendto(text.encode(), address)
            self._failed = False
        except OSError as error:
            if not self._failed:
                _LOG.warning("the service manager at %s cannot be notified: %s", self._address, error)
            self._failed = True
