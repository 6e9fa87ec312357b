"""Where the roles of a run live, as their supervisor sees it: what each runner has of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reverie.checkpointers import CheckpointerBase
from reverie.runners.links.messages import Command, Endpoint, Ready, Report, RoleName, Serving, Setup
from reverie.runners.links.parameter_connections import ParameterAddresses
from reverie.runners.links.weights import WeightsChannel


class Stage(Protocol):
    """Where roles live."""

    @property
    def weights(self) -> WeightsChannel:
        """How weights travel here."""

    def serving(self, name: RoleName, checkpointer: CheckpointerBase | None, before: Endpoint | None) -> Serving:
        """How a shard is to serve; `before` is where the one was whose place it takes."""

    def endpoint(self, name: RoleName, ready: Ready) -> Endpoint:
        """How to reach a shard that is ready."""

    def parameter_addresses(self, shards: Sequence[Setup]) -> ParameterAddresses:
        """How learners reach the parameter shards, all of which are ready."""

    def start(self, setup: Setup) -> None:
        """Make a role. Does not wait for it."""

    def tell(self, name: RoleName, command: Command) -> None:
        """Send a command; one for a role that is gone is lost. Does not wait for the role for longer than seconds."""

    def listen(self, timeout: float) -> Sequence[tuple[RoleName, Report]]:
        """What roles told, in order; waits at most `timeout` seconds for the first. The last of each is `Died`."""

    def lacks(self, name: RoleName) -> str:
        """Why a role that was started cannot begin, as what comes behind "it"; empty where nothing is known."""

    def stopped(self, name: RoleName) -> str:
        """What has stopped the process of a role that lives, as what comes behind "it"; empty where nothing is known
        to."""

    def kill(self, name: RoleName) -> None:
        """End a role at once; nothing more is heard of it."""

    def close(self) -> None:
        """End whatever still lives, and wait for it."""
