"""The log lines of a command on stderr: as text, or each as one JSON object."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType


class LogFormat(StrEnum):
    """The values of --log-format."""

    text = "text"
    json = "json"


class JsonFormatter(logging.Formatter):
    """A log record as a JSON object in one line.

    `time` (UTC, RFC 3339), `level` (`info`, `warning` ...), `logger` (of a line of the network, the module that wrote
    it), `message`, `fields` (an object of texts, mostly empty) and, after an exception, `exception`, its traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        # Attributes of lines of the network; see log_bridge.rs.
        happened = getattr(record, "happened", record.created)
        line = {
            "time": datetime.fromtimestamp(happened, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": getattr(record, "target", record.name),
            "message": getattr(record, "sentence", None) or record.getMessage(),
            "fields": getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def write_log_lines(chosen: LogFormat) -> None:
    """Write the log of this process to stderr from now on, `reverie`'s from level INFO on.

    As JSON, warnings of Python and exceptions that end the process or a thread are lines, too.
    """
    if chosen is LogFormat.text:
        logging.basicConfig(format="reverie: %(message)s")
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter())
        logging.basicConfig(handlers=[handler])
        logging.captureWarnings(True)
        sys.excepthook = _log_exception
        threading.excepthook = lambda ended: _log_exception(ended.exc_type, ended.exc_value, ended.exc_traceback)
    logging.getLogger("reverie").setLevel(logging.INFO)


def _log_exception(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    error = kind() if error is None else error
    logging.getLogger("reverie").critical("%s", str(error) or kind.__name__, exc_info=(kind, error, trace))
