"""The names of dm-reverb that `reverie` answers to, and where each of them is. No other file lists them.

A name whose module here has the same content is that module; the others are small modules of this folder.
"""

from __future__ import annotations

__all__ = ["ATTRIBUTES", "MODULES"]

#: A module under `reverb`, and so under `reverie`, and the module that it is.
MODULES = {
    "item_selectors": "reverie.selectors",
    "pattern_dataset": "reverie.datasets.patterns",
    "platform": "reverie.ported.platform",
    "platform.checkpointers_lib": "reverie.checkpointers",
    "platform.default": "reverie.ported.platform.default",
    "platform.default.checkpointers": "reverie.checkpointers",
    "replay_sample": "reverie.types",
    "reverb_types": "reverie.ported.reverb_types",
    "structured_writer": "reverie.ported.structured_writer",
    "tf_client": "reverie.ported.tf_client",
    "timestep_dataset": "reverie.ported.trajectory_dataset",
    "trajectory_dataset": "reverie.ported.trajectory_dataset",
    "trajectory_writer": "reverie.ported.trajectory_writer",
}

#: A class at the top of `reverb`, and so of `reverie`, and its module.
ATTRIBUTES = {
    "TFClient": "reverie.ported.tf_client",
    "TimestepDataset": "reverie.ported.trajectory_dataset",
    "TrajectoryDataset": "reverie.ported.trajectory_dataset",
}
