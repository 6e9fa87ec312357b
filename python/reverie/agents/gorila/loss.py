"""The gradient of DQN's loss, which learners push, and its norm."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.dqn.learner import batch_loss
from reverie.agents.flat import FlatNetwork
from reverie.agents.gorila.config import GorilaConfig


class Gradient(NamedTuple):
    """The gradient of one batch, in the flat order of parameters."""

    flat: NDArray[np.float32]
    """`[P]`, not clipped."""
    norm: float
    """The norm of the whole gradient, by which a shard clips: it has only a range of the gradient itself."""
    loss: float


def dqn_gradient(
    online: FlatNetwork[Any], target: FlatNetwork[Any], data: dict[str, Tensor], config: GorilaConfig
) -> Gradient:
    """The gradient of DQN's loss of a batch with respect to the parameters of `online`, which do not change."""
    loss = batch_loss(online, target, data, config)
    gradient = online.gradient(loss)
    norm = torch.linalg.vector_norm(gradient)
    return Gradient(gradient.to("cpu", copy=True).numpy(), norm.item(), loss.item())
