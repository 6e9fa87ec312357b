"""Policies whose weights are the parameters of one network."""

from __future__ import annotations

from typing import Any

from torch import nn

from reverie.agents.core import Weights
from reverie.agents.flat import FlatNetwork


class NetworkPolicy:
    """A policy that computes with one network; subclasses compute the actions.

    Its network is in evaluation mode, in actors, evaluators and loaded policies alike. Networks of learners are in
    training mode.
    """

    def __init__(self, network: FlatNetwork[Any]) -> None:
        self._network = network
        self.module.eval()

    @property
    def module(self) -> nn.Module:
        """The network of the weights."""
        module: nn.Module = self._network.module
        return module

    def load(self, weights: Weights) -> None:
        """Load weights. Raises ValueError for an array of another length."""
        self._network.load(weights.flat)
