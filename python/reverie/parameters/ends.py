"""The two ends of a channel, publisher and subscriber, which are the same for every carrier."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, final

from reverie import _checks
from reverie._log import logger
from reverie.errors import DeadlineExceededError
from reverie.parameters.record import (
    LAST,
    MAX_GENERATION,
    MAX_NUMBER,
    Arrays,
    Parameters,
    Specs,
    Version,
    arrays_of,
    require_same,
    specs_of,
    version_of,
)

POLL_SECONDS = 0.02
"""A subscriber that waits asks for newer parameters no more often than this."""
LOG_SECONDS = 10.0
"""A wait without a deadline logs its reason after this time, and then each time that the wait has doubled."""


class ParameterCarrier(ABC):
    """Stores the newest parameters between the ends of a channel; each end has its own carrier."""

    where: str
    """Names the channel in messages, for example "table 'parameters'"."""

    @abstractmethod
    def put(self, version: Version, arrays: Arrays, timeout: float | None) -> None:
        """Make these the newest, as a whole. The arrays are not kept.

        Raises SupersededError if the channel has a version that is not older, and keeps that one then.
        """

    @abstractmethod
    def fetch(self, above: Version | None, timeout: float | None) -> Parameters | Version | None:
        """The newest parameters if they are newer than `above`, in memory of their own; else only their version.

        None if there are none. Does not wait for a publication; `timeout` is for the carrier's response.
        """

    def newest(self, timeout: float | None) -> Version | None:
        """The newest version, or None if there is none. Waits for the carrier's response."""
        newest = self.fetch(LAST, timeout)
        return newest.version if isinstance(newest, Parameters) else newest

    def wait(self, above: Version | None, seconds: float) -> None:
        """Return when there may be parameters newer than `above`, at the latest after `seconds`."""
        time.sleep(min(seconds, POLL_SECONDS))

    def problem(self) -> str:
        """Why the newest version is not known; empty if it is known, or if `fetch` raises an error instead."""
        return ""


class Channel(ABC):
    """The way of parameters from one publisher to any number of subscribers; it holds the newest version."""

    @abstractmethod
    def carrier(self) -> ParameterCarrier:
        """A carrier for one end. Does not block."""

    def publisher(self, generation: int | None = None, *, timeout: float | None = None) -> Publisher:
        """The publisher's end. A publisher that is made later replaces the one before it.

        Args:
            generation: how often the publisher was restarted; a program that counts this itself passes it. None takes
                one more than the newest version of the channel has, and continues its numbers; 0 if there is none.
            timeout: with None as generation, seconds to wait for the carrier's response.

        Raises:
            DeadlineExceededError: the carrier did not respond; with a server UnavailableError and UnknownTableError.
        """
        carrier, first = self.carrier(), 0
        if generation is None:
            newest = carrier.newest(_seconds(timeout))
            generation, first = (0, 0) if newest is None else (newest.generation + 1, newest.number + 1)
        return Publisher(carrier, _checks.count("generation", generation, 0, MAX_GENERATION), first)

    def subscriber(self, like: Mapping[str, Any] | None = None) -> Subscriber:
        """A subscriber's end. It may be made before or after the publisher, and does not block.

        Args:
            like: arrays or tensors by name, whose dtypes and shapes received parameters must have. None takes those of
                the first parameters that arrive.
        """
        return Subscriber(self.carrier(), None if like is None else specs_of(arrays_of(like)))


@final
class Publisher:
    """Publishes parameters; `channel.publisher()` makes it. Not thread-safe."""

    def __init__(self, carrier: ParameterCarrier, generation: int, first: int) -> None:
        self._carrier, self._next = carrier, first
        self._last = -1
        self._specs: Specs | None = None
        self.generation = generation
        """The generation of the versions that it publishes."""

    def publish(self, arrays: Mapping[str, Any], number: int | None = None, *, timeout: float | None = None) -> Version:
        """Make these parameters the newest, all at once: a subscriber never receives parts of two versions.

        Args:
            arrays: arrays or PyTorch tensors of numbers by name, such as `module.state_dict()`; each time with the same
                names, dtypes and shapes. They are not kept. A tensor on a GPU is copied to main memory. A tensor of
                bfloat16 or float8 becomes an array of `ml_dtypes`, which must be installed.
            number: the number of the version, greater than the last one of this publisher; None takes the next. A call
                that fails uses up its number.
            timeout: seconds to wait for the carrier: a server's confirmation, or Ray's response to the publication
                before. In-process and with a file there is nothing to wait for.

        Returns:
            the version.

        Raises:
            SupersededError: a newer publisher has published to this channel, which keeps those parameters. Over Ray the
                call after the superseded one raises it.
            SignatureError: names, dtypes or shapes differ from those of the publication before.
            ValueError: no arrays, or a number that is not greater than the last.
            TypeError: a value is not an array of numbers.
            OSError: the file system refused the file of a `FileChannel`, or Ray's object store is full. Earlier
                publications stay.
            DeadlineExceededError, UnavailableError: as for `Client.insert`.
        """
        named = arrays_of(arrays)
        if self._specs is not None:
            require_same(self._specs, named, "the parameters published before")
        within = _seconds(timeout)
        number = self._next if number is None else _checks.count("number", number, 0)
        if number <= self._last:
            raise ValueError(f"number must be greater than {self._last}, the last one, got {number}")
        if number > MAX_NUMBER:
            raise ValueError(f"number must be at most {MAX_NUMBER}, got {number}")
        version = Version(self.generation, number)
        self._last, self._next = number, number + 1
        self._carrier.put(version, named, within)
        self._specs = specs_of(named)
        return version


@final
class Subscriber:
    """Receives the newest parameters; `channel.subscriber()` makes it. Not thread-safe.

    It skips versions that were replaced before it asked, and never returns an older version than it has returned.
    """

    def __init__(self, carrier: ParameterCarrier, like: Specs | None) -> None:
        self._carrier, self._specs = carrier, like
        self._whose = "the parameters received before" if like is None else "`like`"
        self._newest: Version | None = None

    def latest(self, newer_than: Version | None = None) -> Parameters | None:
        """The newest parameters that have arrived, or None if there are none newer than `newer_than`.

        Does not wait for a publication. With a server this is a request, and a second one if there are newer
        parameters; both wait as `Client.query` without `timeout=`. Over Ray it sends a request and does not wait for
        the response, which a later call returns; for newer parameters it waits until they are on this node.

        Raises:
            SignatureError: names, dtypes or shapes differ from `like`, or from those received before.
            UnavailableError: the server cannot be reached.
        """
        above = None if newer_than is None else version_of("newer_than", newer_than)
        fetched = self._fetch(above, None)
        return fetched if isinstance(fetched, Parameters) else None

    def get(self, newer_than: Version | None = None, timeout: float | None = None) -> Parameters:
        """The newest parameters; waits until there are any newer than `newer_than`.

        Args:
            newer_than: the version that the caller has; None accepts any.
            timeout: seconds to wait. 0 tries once; None waits without a limit, and logs the reason after 10 s and then
                sparsely.

        Raises:
            DeadlineExceededError: with the reason, also as `.why`.
            SignatureError: names, dtypes or shapes differ from `like`, or from those received before.
            UnavailableError: the server cannot be reached.
        """
        above = None if newer_than is None else version_of("newer_than", newer_than)
        within = _seconds(timeout)
        began = time.monotonic()
        end = math.inf if within is None else began + within
        log_at = began + LOG_SECONDS
        while True:
            rest = max(0.0, end - time.monotonic())
            fetched = self._fetch(above, None if within is None else rest)
            if isinstance(fetched, Parameters):
                return fetched
            now = time.monotonic()
            if rest == 0.0:
                why = self._why(above, fetched)
                raise DeadlineExceededError(f"no newer parameters within {timeout:g} s: {why}", why=why)
            if within is None and now >= log_at:
                logger().warning("still waiting after %.0f s: %s", now - began, self._why(above, fetched))
                log_at = now + (now - began)
            self._carrier.wait(self._threshold(above), min(rest, 1.0))

    def _threshold(self, above: Version | None) -> Version | None:
        """Parameters up to this version are not returned."""
        newest = self._newest
        if newest is None:
            return above
        # The newest version that was returned may be returned again.
        before = newest._replace(number=newest.number - 1)
        return before if above is None else max(above, before)

    def _fetch(self, above: Version | None, timeout: float | None) -> Parameters | Version | None:
        fetched = self._carrier.fetch(self._threshold(above), timeout)
        if isinstance(fetched, Parameters):
            if self._specs is not None:
                require_same(self._specs, fetched.arrays, self._whose)
            self._specs, self._newest = specs_of(fetched.arrays), fetched.version
        return fetched

    def _why(self, above: Version | None, newest: Version | None) -> str:
        where, problem = self._carrier.where, self._carrier.problem()
        if problem:
            return f"{where} does not answer: {problem}"
        if newest is None:
            return f"no parameters were published to {where} yet"
        if above is not None and newest <= above:
            return f"the newest parameters of {where} are {newest}, and the call waits for newer ones than {above}"
        return f"the newest parameters of {where} are {newest}, and this subscriber has received {self._newest}"


def _seconds(timeout: Any) -> float | None:
    if timeout is None:
        return None
    seconds = _checks.number("timeout", timeout)
    if not seconds >= 0:
        raise ValueError(f"timeout must be None or at least 0 seconds, got {timeout}")
    return seconds
