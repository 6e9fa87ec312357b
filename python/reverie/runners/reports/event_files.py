"""Event files of TensorBoard, written without TensorFlow.

`torch.utils.tensorboard` imports TensorFlow where it is installed, for its file functions alone. That takes seconds and
hundreds of megabytes, and can end the process: PyTorch and TensorFlow may each bring an LLVM, which aborts at options
that are registered twice.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["EventFile"]

_FILES = itertools.count()
"""Numbers the files of this process, whose names have seconds only."""


class EventFile:
    """One event file, `events.out.tfevents.*`, in a folder of TensorBoard's; records are whole and in order.

    Args:
        folder: the folder; it is made if it does not exist.
        purge_from: TensorBoard leaves out what older files of the folder have from this step on; None keeps all.

    Raises:
        ImportError: tensorboard, whose message types are used, is not installed.
        OSError: the file cannot be written.
    """

    def __init__(self, folder: Path, *, purge_from: int | None = None) -> None:
        self._messages = message_types()
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(_FILES):06}"
        self._file = (folder / name).open("ab", buffering=0)
        self._add(file_version="brain.Event:2")
        if purge_from is not None:
            log = self._messages.SessionLog
            self._add(step=purge_from, session_log=log(status=log.START))

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add numbers by name at a step. Raises OSError if they cannot be written; the file is as before then."""
        summary = self._messages.Event().summary
        for name, value in scalars.items():
            summary.value.add(tag=name, simple_value=value)
        self._add(step=step, summary=summary)

    def add_text(self, step: int, name: str, text: str) -> None:
        """Add Markdown at a step. Raises OSError if it cannot be written; the file is as before then."""
        summary = self._messages.Event().summary
        value = summary.value.add(tag=f"{name}/text_summary")
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = _DT_STRING
        value.tensor.tensor_shape.dim.add(size=1)
        value.tensor.string_val.append(text.encode())
        self._add(step=step, summary=summary)

    def add_png(self, step: int, name: str, png: bytes) -> None:
        """Add a picture, the bytes of a PNG, at a step. Raises OSError if it cannot be written, ValueError for others.

        The file is as before then.
        """
        if not png.startswith(_PNG) or len(png) < 24:
            raise ValueError(f"picture {name} is not a PNG")
        width, height = struct.unpack(">II", png[16:24])
        summary = self._messages.Event().summary
        image = summary.value.add(tag=name).image
        image.width, image.height, image.colorspace, image.encoded_image_string = width, height, 4, png
        self._add(step=step, summary=summary)

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    def _add(self, **fields: Any) -> None:
        record = _record(self._messages.Event(wall_time=time.time(), **fields).SerializeToString())
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(record) < len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):
                self._file.truncate(size)
            raise


_PNG = b"\x89PNG\r\n\x1a\n"
_DT_STRING = 7
"""`DT_STRING` of TensorFlow's `types.proto`."""


def message_types() -> Any:
    """TensorBoard's module of messages. Raises ImportError, which names the extra, if it is not installed."""
    try:
        from tensorboard.compat.proto import event_pb2
    except ImportError as error:
        raise ImportError('tensorboard is not installed: pip install "reverie[tensorboard]"') from error
    return event_pb2


def _record(data: bytes) -> bytes:
    """A record of a TFRecord file: length, its checksum, data, their checksum; little-endian."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _masked(data: bytes) -> int:
    """The CRC-32C of the data as TFRecord files have it: rotated right by 15 bits, plus a constant."""
    value = 0xFFFFFFFF
    table = _crc_table()
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def _crc_table() -> tuple[int, ...]:
    """The remainders of all bytes for the polynomial of Castagnoli, reflected: 0x82F63B78."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)
