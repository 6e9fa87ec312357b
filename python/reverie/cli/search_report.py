"""The results of `reverie search`: a table, the importance of each setting, and the best preset."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from reverie.agents import presets
from reverie.cli.search_trials import SearchPlan, settings_of, was_interrupted

if TYPE_CHECKING:
    from reverie.agents.core import Preset

BEST = "best.toml"
NEW_SEEDS = 5
"""The number of seeds that the printed command trains on."""


def rows(plan: SearchPlan, study: Any) -> list[dict[str, Any]]:
    """The trials that ended, the best first, then pruned ones and those without a result."""
    found = []
    for trial in study.get_trials():
        if not trial.state.is_finished() or was_interrupted(trial):
            continue
        state = {"COMPLETE": "complete", "PRUNED": "pruned"}.get(trial.state.name, "no result")
        last = max(trial.intermediate_values, default=None)
        value = trial.value if state == "complete" else None if last is None else trial.intermediate_values[last]
        found.append(
            {
                "trial": trial.number,
                "state": state,
                "value": value,
                "env_steps": last,
                "settings": dict(setting.split("=", 1) for setting in settings_of(plan.space, trial.params)),
                "folder": str(plan.folder / trial.user_attrs.get("folder", f"trial-{trial.number}")),
            }
        )
    order = ("complete", "pruned", "no result")
    return sorted(found, key=lambda row: (order.index(row["state"]), -(row["value"] or 0.0), row["trial"]))


def importances(study: Any) -> dict[str, float]:
    """The share of each setting in what makes trials good, adding up to 1 (PED-ANOVA, Watanabe et al. 2023).

    Empty where completed trials have fewer than four different values of the objective: these are too few to judge by.
    """
    from optuna import importance
    from optuna.trial import TrialState

    values = {trial.value for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))}
    if len(values) < 4:
        return {}
    found = importance.get_param_importances(study, evaluator=importance.PedAnovaImportanceEvaluator())
    return {name: round(float(share), 4) for name, share in found.items()}


def save_best(plan: SearchPlan, preset: Preset, best: dict[str, Any]) -> Path:
    """Write the preset with the settings of the best trial. Raises OSError."""
    from reverie.runners.reports.logs import replace_file

    path = plan.folder / BEST
    settings = [f"{name}={text}" for name, text in best["settings"].items()]
    replace_file(path, presets.dump(presets.override(preset, settings)).encode())
    return path


def line(row: dict[str, Any]) -> str:
    """A trial in one line."""
    settings = ", ".join(f"{name} {_short(text)}" for name, text in row["settings"].items())
    value = [] if row["value"] is None else [f"{row['value']:.1f}"]
    ended = {"complete": [], "pruned": [f"pruned after {row['env_steps'] or 0:,} steps"]}.get(
        row["state"], ["no result"]
    )
    return f"trial {row['trial']}: {', '.join([*value, *ended])}; {settings}"


def show(plan: SearchPlan, study: Any, preset: Preset, *, as_json: bool) -> bool:
    """Print the results and write `best.toml`; returns whether a trial was completed."""
    found, shares = rows(plan, study), importances(study)
    best = next((row for row in found if row["state"] == "complete"), None)
    saved = None if best is None else save_best(plan, preset, best)
    console = Console(stderr=as_json, highlight=False)
    console.print(_table(plan, found))
    if shares:
        text = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())
        console.print(f"importance: {text}", soft_wrap=True)
    if best is None:
        print(f"reverie: none of {len(found)} trials was completed", file=sys.stderr)
    else:
        console.print(
            f"best: trial {best['trial']}, {plan.objective.value} return {best['value']:.1f}; to train with it on other"
            f" seeds:\n  {shlex.join(_command(plan, saved))}",
            soft_wrap=True,
            markup=False,
        )
    if as_json:
        together = {
            "agent": plan.request.agent,
            "env_id": plan.request.env,
            "objective": plan.objective.value,
            "seeds": list(plan.seeds),
            "folder": str(plan.folder),
            "best": best,
            "preset": None if saved is None else str(saved),
            "importances": shares,
            "trials": found,
        }
        print(json.dumps(together), flush=True)
    return best is not None


def _command(plan: SearchPlan, preset: Path | None) -> list[str]:
    """The command that trains with the best settings, on seeds that did not select them."""
    first = max(plan.seeds) + 1
    seeds = f"{first}-{first + NEW_SEEDS - 1}"
    return [
        *("reverie", "train", plan.request.agent, "--env", plan.request.env),
        *("--config", str(preset), "--seeds", seeds),
    ]


def _table(plan: SearchPlan, found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("trial", justify="right")
    table.add_column(f"{plan.objective.value} return", justify="right")
    table.add_column("steps", justify="right")
    for name in plan.space:
        table.add_column(name, justify="right")
    table.add_column("ended")
    for row in found:
        value = "-" if row["value"] is None else f"{row['value']:.1f}"
        steps = "-" if row["env_steps"] is None else f"{row['env_steps']:,}"
        table.add_row(
            str(row["trial"]), value, steps, *(_short(row["settings"][name]) for name in plan.space), row["state"]
        )
    return table


def _short(text: str) -> str:
    """A number with four digits; other values as they are."""
    try:
        return f"{float(text):.4g}" if "." in text or "e" in text else text
    except ValueError:
        return text
