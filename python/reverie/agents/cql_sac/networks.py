"""SAC's policy network and policy under this agent's name, and the factor of the conservative term's weight."""

from __future__ import annotations

import torch
from torch import nn

from reverie.agents.flat import FlatNetwork
from reverie.agents.sac.networks import GreedyPolicy, make_policy_network

__all__ = ["LOG_FACTOR", "GreedyPolicy", "PenaltyFactor", "bound", "make_policy_network"]

LOG_FACTOR = (-14.0, 14.0)
"""The bounds of the factor's logarithm, a million either way: the term may stay on one side of its threshold for long,
and the factor must still be able to return."""


class PenaltyFactor(nn.Module):
    """The factor, kept as its logarithm so that it stays above 0. It is 1 at first."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(1))


@torch.no_grad()
def bound(factor: FlatNetwork[PenaltyFactor]) -> None:
    """Put the factor back within its bounds."""
    factor.flat.clamp_(*LOG_FACTOR)
