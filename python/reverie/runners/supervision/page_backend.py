"""The page of a run whose roles are elsewhere: a backend that lets the server of one role show the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from reverie.pages import Page, port_of
from reverie.runners.links.messages import (
    BundleReport,
    Command,
    LearnerReport,
    Report,
    RoleName,
    RoleReady,
    RoleSetup,
    ShardEndpoint,
    ShardReport,
    ShardSettings,
    ShowFigures,
)
from reverie.runners.links.parameter_connections import ParameterAddresses
from reverie.runners.links.replay_storage import ReplayStorage
from reverie.runners.links.weights import WeightsChannel
from reverie.runners.reports.events import Event, PageOpened
from reverie.runners.reports.run_figures import RunFigures
from reverie.runners.supervision.role_backend import RoleBackend


class PageBackend:
    """A backend whose first shard, or first bundle, has an HTTP port, and shows the run there.

    Figures are sent in answer to that role's reports, so at most one message of them waits for a role that is slow. A
    role that is restarted has the page at its old port if that is free; otherwise the run reports the new address.
    """

    def __init__(self, backend: RoleBackend, page: Page, on_event: Callable[[Event], None]) -> None:
        self._backend, self._page, self._on_event = backend, page, on_event
        self._figures = RunFigures()
        self._newest: dict[str, Any] | None = None
        """Figures that were not sent yet."""
        self._url, self._env_steps = "", 0
        self._shards: list[dict[str, Any]] | None = None

    def on_event(self, event: Event) -> None:
        """Pass an event on, and what it changes in the figures."""
        self._on_event(event)
        figures = self._figures(event)
        if figures is not None:
            self._newest, self._env_steps = figures, figures["env_steps"]

    def start(self, setup: RoleSetup) -> None:
        """Start a role. See `RoleBackend.start`."""
        if _has_page(setup.name):
            assert setup.serving is not None
            setup = replace(setup, serving=replace(setup.serving, page=self._page))
        if setup.name.kind == "learner" and setup.name.index == 0:
            setup = replace(setup, reports_shards=setup.num_shards > 1)
        self._backend.start(setup)

    def listen(self, timeout: float) -> Sequence[tuple[RoleName, Report]]:
        """The reports of the roles. See `RoleBackend.listen`."""
        reports = self._backend.listen(timeout)
        for name, report in reports:
            served = report.served if isinstance(report, BundleReport) else report
            if _has_page(name) and isinstance(served, ShardReport):
                self._serve(name, served)
            if isinstance(report, LearnerReport) and report.shards is not None:
                self._shards = report.shards
        return reports

    def _serve(self, name: RoleName, served: ShardReport) -> None:
        if served.page != self._url:
            self._url = served.page
            self._page = self._page.at_port(port_of(served.page))
            self._on_event(PageOpened(self._env_steps, self._url))
        if self._newest is not None:
            self._backend.send(name, ShowFigures({**self._newest, "shards": self._shards}))
            self._newest = None

    @property
    def weights(self) -> WeightsChannel:
        """See `RoleBackend.weights`."""
        return self._backend.weights

    def serving(self, name: RoleName, storage: ReplayStorage, before: ShardEndpoint | None) -> ShardSettings:
        """See `RoleBackend.serving`."""
        return self._backend.serving(name, storage, before)

    def endpoint(self, name: RoleName, ready: RoleReady) -> ShardEndpoint:
        """See `RoleBackend.endpoint`."""
        return self._backend.endpoint(name, ready)

    def parameter_addresses(self, shards: Sequence[RoleSetup]) -> ParameterAddresses:
        """See `RoleBackend.parameter_addresses`."""
        return self._backend.parameter_addresses(shards)

    def send(self, name: RoleName, command: Command) -> None:
        """See `RoleBackend.send`."""
        self._backend.send(name, command)

    def why_not_started(self, name: RoleName) -> str:
        """See `RoleBackend.why_not_started`."""
        return self._backend.why_not_started(name)

    def why_stopped(self, name: RoleName) -> str:
        """See `RoleBackend.why_stopped`."""
        return self._backend.why_stopped(name)

    def kill(self, name: RoleName) -> None:
        """See `RoleBackend.kill`."""
        self._backend.kill(name)

    def close(self) -> None:
        """See `RoleBackend.close`."""
        self._backend.close()


def _has_page(name: RoleName) -> bool:
    return name.kind in ("shard", "bundle") and name.index == 0
