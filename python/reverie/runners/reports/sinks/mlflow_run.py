"""The sink that writes a run of MLflow."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reverie.runners.reports.sinks.sink import RunDescription, RunOutcome, read_identity, save_identity

NAME = "mlflow"
STATUS: Mapping[RunOutcome, str] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
PARAMS_PER_CALL = 100
"""The most parameters that MLflow takes in one call."""


class MLflowSink:
    """One run of MLflow; its id is in `folder/tracking`.

    The store is that of `MLFLOW_TRACKING_URI` or `mlflow.set_tracking_uri`: a server, or `sqlite:///FILE`. Otherwise it
    is `mlflow.db` in the working folder, which is also MLflow's own default.

    Args:
        folder: the run's folder.
        experiment: the experiment, made if there is none; "" is `MLFLOW_EXPERIMENT_NAME`, or else "reverie".
        tags: tags in addition to the run's folder, each with the value "true".

    Raises:
        ImportError: mlflow (or mlflow-skinny) is not installed; the message names the extra.
    """

    def __init__(self, folder: Path, *, experiment: str = "", tags: Sequence[str] = ()) -> None:
        # MLflow prints the address of a run to stdout, which belongs to the command's result.
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        try:
            from mlflow import entities, tracking
        except ImportError as error:
            raise ImportError('mlflow is not installed: pip install "reverie[mlflow]"') from error
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it reports each table that it makes in a new store
        self.where = ""
        self._entities, self._folder, self._tags = entities, folder, tuple(tags)
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "reverie"
        self._uri = tracking.get_tracking_uri()
        if not tracking.is_tracking_uri_set():
            self._uri = f"sqlite:///{Path('mlflow.db').resolve()}"
        self._make_client = tracking.MlflowClient
        self._client: Any = None
        self._run_id = ""

    def begin(self, run: RunDescription) -> None:
        """Start the run with its parameters, or continue the one whose id is in the folder."""
        client = self._make_client(tracking_uri=self._uri)
        identity = read_identity(self._folder, NAME) if run.env_steps else {}
        if identity.get("uri") == self._uri:
            run_id = identity["run_id"]
            client.update_run(run_id, status="RUNNING")
            self._tag_changes(client, run_id, run)
        else:
            run_id = self._create(client, run)
        save_identity(self._folder, NAME, uri=self._uri, run_id=run_id)
        self._client, self._run_id = client, run_id
        self.where = f"{self._uri}, experiment {self._experiment}, run {run_id}"

    def add_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add metrics; waits until the store has them."""
        now = time.time_ns() // 1_000_000
        metrics = [self._entities.Metric(name, float(value), now, step) for name, value in scalars.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def add_summary(self, step: int, summary: Mapping[str, Any]) -> None:
        """Add the result as `summary.json`, and as tags, by which runs can be searched."""
        self._client.log_dict(self._run_id, {"env_steps": step, **summary}, "summary.json")
        for name, value in {"env_steps": step, **summary}.items():
            self._client.set_tag(self._run_id, f"summary.{name}", str(value))

    def add_file(self, step: int, path: Path) -> None:
        """Copy the file to the run's artifacts."""
        self._client.log_artifact(self._run_id, str(path))

    def close(self, outcome: RunOutcome) -> None:
        """End the run with the status of its outcome; idempotent."""
        if self._client is not None:
            self._client.set_terminated(self._run_id, status=STATUS[outcome])
            self._client = None

    def _create(self, client: Any, run: RunDescription) -> str:
        experiment = client.get_experiment_by_name(self._experiment)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(self._experiment)
        tags = {"folder": str(self._folder.resolve()), **dict.fromkeys(self._tags, "true")}
        run_id: str = client.create_run(experiment_id, run_name=run.name, tags=tags).info.run_id
        params = [self._entities.Param(name, str(value)) for name, value in run.settings.items()]
        for first in range(0, len(params), PARAMS_PER_CALL):
            client.log_batch(run_id, params=params[first : first + PARAMS_PER_CALL])
        return run_id

    def _tag_changes(self, client: Any, run_id: str, run: RunDescription) -> None:
        """Settings that a resumed run changes: a parameter of MLflow never changes, so that a tag has the new value."""
        before = client.get_run(run_id).data.params
        for name, value in run.settings.items():
            if before.get(name) != str(value):
                client.set_tag(run_id, f"changed.{name}", f"{value} from step {run.env_steps}")
