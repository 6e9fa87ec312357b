"""`launch`: runs a checked run on the backend that starts its roles."""

from __future__ import annotations

from reverie.runners.checked_run import CheckedRun
from reverie.runners.reports.events import Result
from reverie.runners.supervision.page_backend import PageBackend
from reverie.runners.supervision.role_backend import RoleBackend
from reverie.runners.supervision.supervisor import Supervisor


def launch(backend: RoleBackend, run: CheckedRun) -> Result:
    """Train with the roles on `backend`, which the caller closes."""
    on_event = run.on_event
    if run.page is not None:
        page = PageBackend(backend, run.page, on_event)
        backend, on_event = page, page.on_event
    supervisor = Supervisor(
        run.agent,
        run.topology,
        backend,
        on_event,
        checkpoint_folder=run.checkpoint_folder,
        resume=run.resume,
        state=run.state,
        replays=run.replays,
        best=run.best,
        should_stop=run.should_stop,
    )
    return supervisor.run(run.stop_when_confirmed)
