"""Newest parameters from a learner to its actors: the parameter server of Ape-X (Horgan et al. 2018, algorithms 1, 2).

A publisher publishes named arrays, each time under a newer `Version`; subscribers read the newest ones. A `Channel` is
the way between them, and the calls are the same over each:

- `LocalChannel()`: between threads of this process.
- `FileChannel(path)`: between processes of this machine, through one file, in memory if it is in `/dev/shm`.
- `TableChannel(client)`: over a `reverie.Server`, whose table (`reverie.parameters.table()`) holds the newest version.
- `reverie.parameters.ray.RayChannel()`: over Ray's object store (`reverie[ray]`).

The runners of `reverie train` move their weights over `FileChannel` and `RayChannel`.
"""

from reverie.parameters.ends import Channel, ParameterCarrier, Publisher, Subscriber
from reverie.parameters.file import FileChannel
from reverie.parameters.local import LocalChannel
from reverie.parameters.record import Parameters, Version
from reverie.parameters.table import TableChannel, table

__all__ = [
    "Channel",
    "FileChannel",
    "LocalChannel",
    "ParameterCarrier",
    "Parameters",
    "Publisher",
    "Subscriber",
    "TableChannel",
    "Version",
    "table",
]
