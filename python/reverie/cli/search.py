"""`reverie search`: settings of a preset, searched by Optuna."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reverie import agents
from reverie.cli import log_choice, sweep, sweep_view, train_plan
from reverie.cli import train_flags as flags
from reverie.cli.common import EXIT_INTERRUPTED, LastLineJson, find_modules_here, refuse, require_agents
from reverie.cli.run_processes import signals_as_ctrl_c
from reverie.cli.search_objective import SearchObjective
from reverie.cli.search_study import Pruner, Sampler, open_study, require_optuna
from reverie.cli.train_request import TrainRequest

if TYPE_CHECKING:
    from reverie.agents.core import Preset
    from reverie.cli.search_space import Space
    from reverie.cli.search_trials import SearchPlan

EXIT_FOUND = 0
EXIT_NOTHING = 1
SAME_FOR_ALL = {
    "max_env_steps": "when runs are evaluated",
    "evaluate_every": "when runs are evaluated",
    "time_limit": "what evaluations play",
    "evaluation_env": "what evaluations play",
    "evaluation_wrappers": "what evaluations play",
}
"""Settings by which returns of two trials would not be comparable, and why."""
EPILOG = (
    "Exit codes: 0 at least one trial was completed; 1 none was; 2 invalid arguments, or this machine cannot run it;"
    " 130 interrupted."
)


def search(
    agent: flags.Agent,
    env: flags.Env,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Number of trials, those of --resume included.")] = 20,
    searched: Annotated[
        list[str] | None,
        typer.Option(
            "--search",
            metavar="NAME=RANGE",
            help="A setting and its range: log:1e-4:1e-2, float:0.9:0.99, int:1:5, logint:16:512 or choice:32,64,128;"
            " repeatable.",
        ),
    ] = None,
    space: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with ranges, a .toml or .yaml; --search takes precedence.")
    ] = None,
    objective: Annotated[
        SearchObjective,
        typer.Option(help="Objective to maximise, of the greedy returns: the last, the best, or their mean."),
    ] = SearchObjective.last,
    sampler: Annotated[
        Sampler,
        typer.Option(
            help="Method that draws the settings: by the trials so far, at random, or each combination of choices and"
            " of ranges with steps. None draws the same settings twice."
        ),
    ] = Sampler.tpe,
    pruner: Annotated[Pruner, typer.Option(help="Method that ends trials early.")] = Pruner.median,
    sampler_seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the sampler.")] = 0,
    seeds: Annotated[
        str, typer.Option(metavar="SEEDS", help="Seeds of the runs of each trial, such as 0-2; their mean counts.")
    ] = "0",
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Trials at the same time.")] = 1,
    config: flags.Config = None,
    settings: flags.Settings = None,
    max_steps: flags.MaxSteps = None,
    device: flags.Device = None,
    until_max_steps: flags.UntilMaxSteps = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The search's folder (default: runs/search-AGENT-ENV).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the search in the folder.")] = False,
    runner: flags.Where = flags.Runner.local,
    num_shards: flags.NumShards = 1,
    address: flags.Address = None,
    check_memory: flags.CheckMemory = True,
    tensorboard: flags.TensorBoard = None,
    log: flags.Log = None,
    project: flags.Project = None,
    tag: flags.Tags = None,
    quiet: flags.Quiet = False,
    as_json: LastLineJson = False,
) -> None:
    """Search for settings of AGENT that maximise its greedy return on ENV.

    Each trial trains with settings that Optuna draws, in a folder like that of an ordinary run. The
    search's folder also gets study.db, Optuna's storage, and best.toml, the preset with the best settings, for
    `reverie train --config`. Ctrl-C saves and ends; the same command with --resume continues, also with more trials.
    """
    require_agents()
    require_optuna()
    find_modules_here()
    if address is not None and runner is not flags.Runner.ray:
        refuse(f"--address is for a Ray cluster, and --runner is {runner.value}: leave one of them out")
    short = {"max_steps": max_steps, "device": device}
    request = TrainRequest(
        agent=agent,
        env=env,
        config=config,
        settings=tuple(settings or ()),
        short_flags={name: value for name, value in short.items() if value is not None},
        until_max_steps=until_max_steps,
        runner=runner.value,
        num_shards=num_shards,
        address=address,
        check_memory=check_memory,
        tensorboard=tensorboard,
        log=None if log is None else log_choice.names_of(log),
        project=project,
        tags=None if tag is None else tuple(tag),
        quiet=quiet,
    )
    preset = train_plan.check_together(request, jobs)
    ranges = _space(request, preset, space, searched or (), grid=sampler is Sampler.grid)
    plan = _plan(request, preset, ranges, sweep.seeds_of(seeds), objective, out)
    from reverie.agents import presets

    study = open_study(plan, presets.dump(preset), sampler, pruner, seed=sampler_seed, resume=resume)
    raise typer.Exit(_search(plan, study, preset, sampler, trials, jobs, as_json=as_json))


def _space(request: TrainRequest, preset: Preset, file: Path | None, searched: Sequence[str], *, grid: bool) -> Space:
    """The space, none of whose settings has a value by another option; errors end the command."""
    from reverie.agents import presets
    from reverie.cli import search_space
    from reverie.cli.short_flags import SHORT_FLAGS

    try:
        space = search_space.read(file, searched, preset, grid=grid)
        fixed = {one.partition("=")[0].strip(): "--set" for one in request.settings}
        fixed |= {SHORT_FLAGS[name]: "--" + name.replace("_", "-") for name in request.short_flags}
        for name, option in fixed.items():
            if (setting := presets.setting_named(name, preset)) in space:
                refuse(f"{setting} has a value by {option} and a range in the search space: leave one of them out")
    except presets.PresetError as error:
        refuse(presets.PresetError(error.path, error.reason, agents.find(request.agent).name))
    except (ValueError, OSError) as error:
        refuse(error)
    return space


def _plan(
    request: TrainRequest,
    preset: Preset,
    space: Space,
    seeds: tuple[int, ...],
    objective: SearchObjective,
    out: Path | None,
) -> SearchPlan:
    from reverie.cli.search_trials import SearchPlan

    for name, what in SAME_FOR_ALL.items():
        if name in space:
            refuse(f"search space: {name} sets {what}, and is the same for all trials: leave it out")
    agent = agents.find(request.agent).name
    folder = out or Path("runs") / f"search-{agent}-{request.env.replace('/', '_')}"
    run = preset.run
    return SearchPlan(request, folder, space, seeds, objective, run.evaluate_every, run.max_env_steps)


def _search(
    plan: SearchPlan, study: Any, preset: Preset, sampler: Sampler, number: int, jobs: int, *, as_json: bool
) -> int:
    """Run the trials and print the results; returns the exit code."""
    from reverie.cli import search_report
    from reverie.cli.search_trials import SearchEndedError, TrialRunner

    stream = sys.stderr if as_json else sys.stdout

    def report(trial: int) -> None:
        row = next(row for row in search_report.rows(plan, study) if row["trial"] == trial)
        print(search_report.line(row), file=stream, flush=True)

    trials, ended = TrialRunner(plan, study, report), ""
    try:
        with signals_as_ctrl_c(), sweep_view.shown(trials.folders, as_json=as_json, quiet=plan.request.quiet):
            trials.run(number, jobs)
    except KeyboardInterrupt:
        done = len(search_report.rows(plan, study))
        print(
            f"reverie: interrupted after {done} of {number} trials; the same command with --resume continues",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    except SearchEndedError as error:
        ended = str(error)
    found = search_report.show(plan, study, preset, as_json=as_json)
    if message := _coverage(plan, study, sampler, number, exhausted=trials.exhausted):
        print(f"reverie: {message}", file=sys.stderr)
    if ended:
        print(f"reverie: {ended}", file=sys.stderr)
    return EXIT_FOUND if found and not ended else EXIT_NOTHING


def _coverage(plan: SearchPlan, study: Any, sampler: Sampler, number: int, *, exhausted: bool) -> str:
    """Why a search ended before its last trial, or the part of a grid that it tried; empty where neither is so."""
    from reverie.cli import search_report, search_space
    from reverie.cli.search_trials import tried

    size = search_space.size(plan.space)
    if exhausted:
        done = len(search_report.rows(plan, study))
        return (
            f"all {size} combinations of the search space were tried: the search ends after {done} of {number} trials"
        )
    done = len(tried(plan.space, study))
    if sampler is Sampler.grid and size is not None and done < size:
        return f"{done} of {size} combinations of the search space were tried; --resume with more --trials continues"
    return ""
