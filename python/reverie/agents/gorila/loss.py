"""DQN's loss as what a learner sends: its gradient, and the norm of that."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.dqn.learner import batch_loss
from reverie.agents.flat import FlatNetwork
from reverie.agents.gorila.config import GorilaConfig
from reverie.agents.learning import backward


class Gradient(NamedTuple):
    """Of one batch, by the parameters in their flat order."""

    flat: NDArray[np.float32]
    """`[P]`, not clipped."""
    norm: float
    """The norm of all of it: a shard has but a range, and cannot know by how much to clip."""
    loss: float


def dqn_gradient(
    online: FlatNetwork[Any], target: FlatNetwork[Any], data: dict[str, Tensor], config: GorilaConfig
) -> Gradient:
    """The gradient of DQN's loss of a batch by the parameters of `online`, which stay as they are."""
    loss = batch_loss(online, target, data, config)
    backward(online, loss)
    assert online.flat.grad is not None
    norm = torch.linalg.vector_norm(online.flat.grad)
    return Gradient(online.flat.grad.to("cpu", copy=True).numpy(), norm.item(), loss.item())
