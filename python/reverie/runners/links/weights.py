"""Weights from a learner to actors and evaluator, published and pulled by version over `reverie.parameters`.

A version is `(generation, number)`: a restarted learner counts as newer than the one before it, although its number of
updates may have gone back to that of its checkpoint.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass

from reverie.agents.core import Weights
from reverie.errors import DeadlineExceededError, SupersededError
from reverie.parameters import Channel, Parameters, Publisher, Subscriber, Version

FLAT = "flat"
"""The name of the one array: the parameters of the acting network, float32 `[P]`."""
PUBLISH_SECONDS = 10.0
"""The longest that a learner waits for its channel. It goes on then: its next weights are newer anyway."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM)
"""Errors of a file system that is full. They end when others leave room."""


@dataclass(frozen=True)
class WeightsChannel:
    """The weights of a run over a channel. Can be pickled if the channel can; each end is made where it is used."""

    channel: Channel

    def publisher(self, generation: int) -> WeightsPublisher:
        """The learner's end; `generation` is how often it was restarted."""
        return WeightsPublisher(self.channel, generation)

    def source(self) -> WeightSubscription:
        """The actor's end."""
        return WeightSubscription(self.channel.subscriber())


class WeightsPublisher:
    """The learner's end. Not thread-safe."""

    def __init__(self, channel: Channel, generation: int) -> None:
        self._channel, self._generation = channel, generation
        self._publisher = self._new_publisher()

    def _new_publisher(self) -> Publisher:
        return self._channel.publisher(self._generation)

    def publish(self, weights: Weights) -> str:
        """Make these the newest, unless a learner that replaced this one has published. The array is not kept.

        Returns an empty string; or, if the channel has no room for them, the reason. The channel keeps the weights that
        it had then, and these may be published again.
        """
        with suppress(DeadlineExceededError, SupersededError):
            try:
                self._publisher.publish({FLAT: weights.flat}, weights.version, timeout=PUBLISH_SECONDS)
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self._publisher = self._new_publisher()  # one publisher takes each version once only
                where = f" ({error.filename})" if error.filename else ""
                return f"{error.strerror or error}{where}"
        return ""


class WeightSubscription:
    """A `WeightSource`, from which an actor pulls weights. Not thread-safe."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._newest: Parameters | None = None
        self.given = Version(-1, -1)
        """Version of the weights that were returned last."""

    @property
    def ready(self) -> bool:
        """True once any weights were published."""
        self._refresh()
        return self._newest is not None

    def latest(self, newer_than: int) -> Weights | None:
        """The newest weights, or None if there are none newer than version `newer_than`. Does not block.

        Weights of a restarted learner are newer than all that the one before it published.
        """
        self._refresh()
        if self._newest is None:
            return None
        version = self._newest.version
        if version.generation == self.given.generation and version.number <= newer_than:
            return None
        self.given = version
        # A copy: they may be asked for again, and the receiver of weights owns them.
        return Weights(version.number, self._newest.arrays[FLAT].copy())

    def _refresh(self) -> None:
        newer = self._subscriber.latest(None if self._newest is None else self._newest.version)
        if newer is not None:
            self._newest = newer
