"""The study of `reverie search`: Optuna's storage in the search's folder, its sampler and its pruner."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reverie.cli.common import refuse

if TYPE_CHECKING:
    from reverie.cli.search_trials import SearchPlan

STORE = "study.db"
NAME = "search"


class Sampler(enum.Enum):
    """How settings are drawn: by the trials so far (tree-structured Parzen estimator), at random, or every one."""

    tpe = "tpe"
    random = "random"
    grid = "grid"


class Pruner(enum.Enum):
    """How a trial is ended early: below the median at the same step, by Hyperband, or never."""

    median = "median"
    hyperband = "hyperband"
    none = "none"


def require_optuna() -> None:
    """End the command if Optuna is not installed."""
    try:
        import optuna
    except ImportError:
        refuse('optuna is not installed: pip install "reverie[search]"')
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_study(plan: SearchPlan, preset: str, sampler: Sampler, pruner: Pruner, *, seed: int, resume: bool) -> Any:
    """The study in the search's folder; a search that is there already ends the command, unless it is resumed.

    A resumed one must have the same runs, space, seeds and objective; its interrupted trials are tried again first.
    """
    import optuna

    from reverie.runners.reports.calls import reason

    store = plan.folder / STORE
    if store.exists() and not resume:
        refuse(f"{plan.folder} holds a search: continue it with --resume, or name another folder with --out")
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        study = optuna.create_study(
            storage=f"sqlite:///{store.resolve()}", study_name=NAME, direction="maximize", load_if_exists=True
        )
    except Exception as error:  # of the file system, of SQLite, or of SQLAlchemy, which Optuna does not wrap
        refuse(f"the search's storage {store} cannot be opened: {reason(error)}")
    identity = _identity(plan, preset)
    earlier = study.user_attrs.get("identity")
    if earlier is None:
        study.set_user_attr("identity", identity)
    else:
        _require_same(plan.folder, earlier, identity)
        _retry_interrupted(study)
    study.sampler = _make_sampler(plan, study, sampler, seed)
    study.pruner = _make_pruner(pruner, plan)
    return study


def _identity(plan: SearchPlan, preset: str) -> dict[str, Any]:
    """The settings that must stay when a search is resumed, so that its trials can be compared."""
    return {
        "agent": plan.request.agent,
        "--env": plan.request.env,
        "space": {name: str(part) for name, part in sorted(plan.space.items())},
        "--seeds": list(plan.seeds),
        "--objective": plan.objective.value,
        "--until-max-steps": plan.request.until_max_steps,
        "settings of the preset": preset,
    }


def _require_same(folder: Path, earlier: dict[str, Any], now: dict[str, Any]) -> None:
    differ = [name for name, value in now.items() if earlier.get(name) != value]
    if not differ:
        return
    name = differ[0]
    if name in ("space", "settings of the preset"):
        what = f"with another {name}" if name == "space" else f"with other {name}"
    else:
        what = f"with {name} {earlier.get(name)}, and this one has {now[name]}"
    refuse(f"{folder} holds a search {what}: repeat its command with --resume, or name another folder with --out")


def _retry_interrupted(study: Any) -> None:
    """Enqueue each trial that an interrupt ended, in its own folder, where its runs continue."""
    from optuna.trial import TrialState

    from reverie.cli.search_trials import was_interrupted

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)
    last = {trial.user_attrs["folder"]: trial for trial in study.get_trials() if "folder" in trial.user_attrs}
    for folder, trial in last.items():
        if was_interrupted(trial):
            study.enqueue_trial(trial.params, user_attrs={"folder": folder})


def _make_sampler(plan: SearchPlan, study: Any, sampler: Sampler, seed: int) -> Any:
    from optuna import samplers

    from reverie.cli.search_draws import DistinctSampler
    from reverie.cli.search_trials import tried

    # With the same seed, a resumed search would draw the trials of its first part again.
    later = seed + len(study.get_trials(deepcopy=False))
    match sampler:
        case Sampler.tpe:
            base: Any = samplers.TPESampler(seed=later)
        case Sampler.random:
            base = samplers.RandomSampler(seed=later)
        case Sampler.grid:
            base = None
    return DistinctSampler(plan.space, lambda: tried(plan.space, study), base, sampler.value, seed)


def _make_pruner(pruner: Pruner, plan: SearchPlan) -> Any:
    from optuna import pruners

    match pruner:
        case Pruner.median:
            return pruners.MedianPruner(n_startup_trials=5)
        case Pruner.hyperband:
            most = plan.max_env_steps * len(plan.seeds)
            return pruners.HyperbandPruner(min_resource=min(plan.evaluate_every, most), max_resource=most)
        case Pruner.none:
            return pruners.NopPruner()
