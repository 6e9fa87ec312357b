"""`launch`: runs a checked run on the stage that holds its roles."""

from __future__ import annotations

from reverie.runners.checked_run import CheckedRun
from reverie.runners.reports.events import Result
from reverie.runners.supervision.page_stage import PageStage
from reverie.runners.supervision.stage import Stage
from reverie.runners.supervision.supervisor import Supervisor


def launch(stage: Stage, run: CheckedRun) -> Result:
    """Train with the roles on `stage`, which the caller closes."""
    on_event = run.on_event
    if run.page is not None:
        page = PageStage(stage, run.page, on_event)
        stage, on_event = page, page.on_event
    supervisor = Supervisor(
        run.agent,
        run.topology,
        stage,
        on_event,
        checkpoint_folder=run.checkpoint_folder,
        resume=run.resume,
        state=run.state,
        replays=run.replays,
        best=run.best,
        should_stop=run.should_stop,
    )
    return supervisor.run(run.stop_when_confirmed)
