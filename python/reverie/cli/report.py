"""The output of a run: its progress, and the report at its end."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from reverie.cli import exits
from reverie.cli.common import duration, of_target, outcome
from reverie.runners import (
    CurvePoint,
    EnvironmentRestarted,
    Evaluated,
    Event,
    Finished,
    LogNotWritten,
    NotSaved,
    PageOpened,
    Progress,
    Result,
    Saved,
    Started,
    UpdatesCompiled,
    WeightsNotPublished,
)
from reverie.runners.reports.problems import problem_of


class _Output(Console):
    """The console for a run's progress."""

    def on_broken_pipe(self) -> None:
        """Called when the reader has closed the output."""
        exits.stop_for_closed_output()


STYLES = {
    NotSaved: "bold red",
    Saved: "bold red",
    LogNotWritten: "bold red",
    WeightsNotPublished: "bold red",
    EnvironmentRestarted: "red",
}
"""Colours of events that report a problem, in the console's words; all others are yellow."""
BARS = "▁▂▃▄▅▆▇█"


class ProgressView:
    """Callback for a run: a live view on a terminal, one line for each evaluation elsewhere. A context manager."""

    shows_problems = True

    def __init__(self, *, to_stderr: bool, quiet: bool = False) -> None:
        self._console = _Output(stderr=to_stderr, highlight=False)
        self._quiet, self._shows = quiet, self._console.is_terminal and not quiet
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)
        self._event: Progress | None = None
        self._first: Progress | None = None
        """The first figures after which the run has made a step, since its start or resume."""
        self._curve: list[CurvePoint] = []
        self._started: Started | None = None

    def __enter__(self) -> ProgressView:
        if self._shows:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shows:
            self._live.stop()

    def warn(self, text: str) -> None:
        """Print a warning that is not an event."""
        self._console.print(text, style="bold red", soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line that is not an event, unless `quiet`."""
        if not self._quiet:
            self._console.print(text, soft_wrap=True)

    def __call__(self, event: Event) -> None:
        """Show one event of a run."""
        match event:
            case Started():
                self._started, self._first, self._curve = event, None, list(event.curve)
                if self._quiet:
                    return
                if event.env_steps:
                    self._console.print(f"resuming after {event.env_steps:,} environment steps", soft_wrap=True)
                self._console.print(event.topology.describe(), soft_wrap=True)
            case Progress():
                self._event = event
                begun = self._started is None or event.env_steps > self._started.env_steps
                if self._first is None and begun:
                    self._first = event
            case Evaluated():
                self._curve.append(event.point)
                if not self._quiet and (event.confirmation is not None or not self._shows):
                    self._console.print(_evaluated(event), soft_wrap=True)
            case UpdatesCompiled(_, note) if not note.reason:
                how = "as an earlier run did" if note.found else f"within {note.seconds:.0f} s"
                self.note(f"updates compiled {how} ({note.update:,} updates)")
            case PageOpened():
                self.note(f"page and metrics: {event.url}")
            case Saved(not_removed="", abandoned=()) | Finished():
                return
            case _:
                self._console.print(problem_of(event), style=STYLES.get(type(event), "yellow"), soft_wrap=True)
        if self._shows and self._event is not None and self._started is not None:
            self._live.update(self._view(self._event, self._started))

    def _view(self, event: Progress, started: Started) -> Table:
        run = started.topology.run
        seconds = max(event.seconds, 1e-9)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        grid.add_column()
        done = min(1.0, event.env_steps / run.max_env_steps)
        bar = "━" * round(40 * done)
        grid.add_row(
            "environment steps",
            Text.assemble(
                (bar.ljust(40, "╌"), "cyan"),
                f" {event.env_steps:,} of at most {run.max_env_steps:,}, {event.env_steps / seconds:,.0f}/s",
            ),
        )
        samples = event.updates * started.topology.needs.batch_size / seconds
        updates = f"{event.updates:,}, {event.updates / seconds:,.0f}/s, {samples:,.0f} trained samples/s"
        if "age_in_updates" in event.learner:
            updates += f"; its batches are {event.learner['age_in_updates']:,.0f} updates old"
        grid.add_row("updates", updates)
        if event.policy_lag is not None:
            grid.add_row("acting policies", f"{event.policy_lag:,.1f} updates behind the learner")
        if "gradients_dropped" in event.learner:
            dropped, stale = event.learner["gradients_dropped"], event.learner.get("staleness", 0.0)
            grid.add_row("gradients", f"{stale:,.1f} updates late, {dropped:,.0f} dropped as too late")
        if event.waits_for:
            grid.add_row("waits for", Text(event.waits_for, style="yellow"))
        grid.add_row("samples per insert", f"{event.samples_per_insert:.2f}")
        training = "none ended yet" if event.training_return is None else f"{event.training_return:.1f}, exploring"
        grid.add_row("training episodes", training)
        greedy = [point.mean_return for point in self._curve]
        if greedy:
            grid.add_row("greedy evaluation", f"{greedy[-1]:.1f}{of_target(run.target_return)}")
            grid.add_row("", Text(sparkline(greedy[-60:]), style="green"))
        grid.add_row("time", f"{event.seconds:.1f} s{self._time_left(event, run.max_env_steps)}")
        return grid

    def _time_left(self, event: Progress, max_env_steps: int) -> str:
        """The longest that the run goes on, by its rate since its first steps; empty before there is a rate.

        The start of a run, in which its processes are made, would make hours of a few seconds.
        """
        first = self._first or event
        steps, seconds = event.env_steps - first.env_steps, event.seconds - first.seconds
        if steps <= 0 or seconds <= 0:
            return ""
        return f", at most {duration((max_env_steps - event.env_steps) * seconds / steps)} left"


def sparkline(values: list[float]) -> str:
    """The values as bars, lowest to highest."""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in values)


def show(result: Result, plot: str, *, to_stderr: bool, quiet: bool = False) -> None:
    """Print a run's report: its evaluation, and unless `quiet` the replay's figures, times, and the curve's path."""
    console = Console(stderr=to_stderr, highlight=False)
    evaluation, target = result.evaluation, result.topology.run.target_return
    if not quiet:
        console.print()
    learnt = "" if result.has_learnt else ", with no update: the weights are those that it began with"
    aim = "no target" if target is None else f"target {target:g}"
    if evaluation.success_rate is not None:
        aim += f"; {evaluation.success_rate:.0%} succeeded"
    console.print(
        f"{outcome(result.confirmed, target)}: {evaluation.mean_return:.1f} over {evaluation.num_episodes} greedy"
        f" episodes (lowest {min(evaluation.returns):g}, {aim}) after {result.env_steps:,} environment steps{learnt}",
        style="bold green" if result.confirmed or target is None else "bold red",
        soft_wrap=True,
    )
    if quiet:
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(justify="right")
    grid.add_column(style="dim", justify="right")
    for name, text in _replay_rows(result):
        grid.add_row(name, text, "")
    grid.add_row("", "", "")
    for name, seconds, share in _time_rows(result):
        grid.add_row(name, f"{seconds:.2f} s", "" if share is None else f"{100 * share:.1f} %")
    console.print(grid)
    console.print(f"learning curve: {plot}", soft_wrap=True)
    if (best := result.best) is not None:
        console.print(
            f"best evaluation: {best.mean_return:.1f} at {best.env_steps:,} steps: {best.path}", soft_wrap=True
        )


def _time_rows(result: Result) -> list[tuple[str, float, float | None]]:
    """Seconds by activity, and their share: of the run's time in one process, of the reported sum in many."""
    rows = sorted(result.activities.items(), key=lambda row: -row[1])
    reported = sum(result.activities.values())
    if result.topology.runner == "local":
        whole, ends = result.seconds, [("total", result.seconds)]
        rows.append(("other", result.seconds - reported))
    else:
        whole, ends = reported, [("sum over all processes", reported), ("elapsed", result.seconds)]
    shares: list[tuple[str, float, float | None]] = [(name, seconds, seconds / whole) for name, seconds in rows]
    return [*shares, *((name, seconds, None) for name, seconds in ends)]


def _replay_rows(result: Result) -> list[tuple[str, str]]:
    replay, learner = result.replay, result.learner
    pushed = {"gradients": "gradients", "gradients_dropped": "gradients dropped as too late"}
    gradients = [(text, f"{learner[name]:,.0f}") for name, text in pushed.items() if name in learner]
    return [
        ("items inserted", f"{replay['inserts']:,.0f}"),
        ("items sampled", f"{replay['samples']:,.0f}"),
        ("samples per insert", f"{replay['samples'] / max(1.0, replay['inserts']):.2f}"),
        ("items in the replay buffer", f"{replay['size']:,.0f}"),
        ("bytes in the replay buffer", f"{replay['bytes']:,.0f}"),
        ("bytes per item", f"{replay['bytes'] / max(1.0, replay['size']):,.0f}"),
        ("priorities updated", f"{replay['priorities_updated']:,.0f}"),
        ("priority updates that came too late", f"{replay['updates_stale']:,.0f}"),
        *gradients,
    ]


def _evaluated(event: Evaluated) -> str:
    point = event.point
    text = f"{point.env_steps:>9,} steps  {point.seconds:6.1f} s  greedy return {point.mean_return:.1f}"
    if point.success_rate is not None:
        text += f", {point.success_rate:.0%} succeeded"
    if event.confirmation is not None:
        mean, count = event.confirmation.mean_return, event.confirmation.num_episodes
        text += f"; {mean:.1f} on {count} other episodes"
    return text
