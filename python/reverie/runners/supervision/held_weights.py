"""The identity of weights: what an evaluation is an evaluation of, and what a checkpoint with its result contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reverie.agents.core import Weights
from reverie.runners.links.messages import RoleName, SavedState


@dataclass(frozen=True)
class HeldWeights:
    """The weights of learners that were paused, and the states of learners and parameter shards that have them.

    The states are those of one moment, and stay at hand if a role ends: a checkpoint that has them has these weights.
    """

    weights: Weights
    states: Mapping[RoleName, SavedState]


def are_same(one: Weights, other: Weights) -> bool:
    """Whether an evaluation of one is an evaluation of the other.

    A number does not identify weights: a restarted learner gives numbers again, and that of several parameter shards is
    the smallest of theirs. So the parameters are compared, too.
    """
    return one.version == other.version and np.array_equal(one.flat, other.flat)
