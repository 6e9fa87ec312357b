"""The interface between the supervisor and a runner: each runner implements its own backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reverie.runners.links.messages import Command, Report, RoleName, RoleReady, RoleSetup, ShardEndpoint, ShardSettings
from reverie.runners.links.parameter_connections import ParameterAddresses
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.links.weights import WeightsChannel


class RoleBackend(Protocol):
    """Starts the roles of a run and carries messages between them and the supervisor."""

    @property
    def weights(self) -> WeightsChannel:
        """The channel for weights on this backend."""

    def serving(self, name: RoleName, storage: ReplayStorage, before: ShardEndpoint | None) -> ShardSettings:
        """The settings of a shard's server; `before` is the endpoint of the shard that it replaces."""

    def endpoint(self, name: RoleName, ready: RoleReady) -> ShardEndpoint:
        """The endpoint of a shard that is ready."""

    def parameter_addresses(self, shards: Sequence[RoleSetup]) -> ParameterAddresses:
        """The addresses of the parameter shards for the learners; all shards are ready."""

    def start(self, setup: RoleSetup) -> None:
        """Start a role. Does not wait for it."""

    def send(self, name: RoleName, command: Command) -> None:
        """Send a command; a command for a role that has ended is lost. Waits for the role for a few seconds at most."""

    def listen(self, timeout: float) -> Sequence[tuple[RoleName, Report]]:
        """Reports of the roles, in order; waits at most `timeout` seconds for one. A role's last is `RoleEnded`."""

    def why_not_started(self, name: RoleName) -> str:
        """Why a role that was started cannot begin, worded to follow "it"; empty if unknown."""

    def why_stopped(self, name: RoleName) -> str:
        """Why the process of a running role is stopped, worded to follow "it"; empty if it is not known to be."""

    def kill(self, name: RoleName) -> None:
        """End a role at once; it sends no more reports."""

    def close(self) -> None:
        """End all roles that still run, and wait for them."""
