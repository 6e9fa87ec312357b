"""One layer of LSTM, for agents whose policy has a state in each episode."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from reverie.agents.layers import InitialisesItself

State = tuple[Tensor, Tensor]
"""`h` and `c` of the LSTM, each `[B, H]`."""


UNCOMPILED_LSTM = "with an LSTM, whose sequences are cut at other steps in each update"
"""Why updates of unrolls with an LSTM are not compiled."""


def num_lstm_parameters(num_inputs: int, units: int) -> int:
    """The number of parameters of an `Lstm`."""
    return 4 * units * (num_inputs + units + 2)


_plain = False


@contextmanager
def in_plain_operations() -> Iterator[None]:
    """A context in which sequences are plain operations too: a compiled library cannot call the fused function."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before


class Lstm(InitialisesItself):
    """One layer of LSTM (Hochreiter & Schmidhuber 1997), with PyTorch's order of gates and its initialisation.

    `step` is made of plain operations, for acting and for files; `forward` is PyTorch's fused function over sequences.
    """

    def __init__(self, num_inputs: int, units: int) -> None:
        super().__init__()
        self.units = units
        self.weight_ih = nn.Parameter(torch.empty(4 * units, num_inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * units, units))
        self.bias_ih = nn.Parameter(torch.empty(4 * units))
        self.bias_hh = nn.Parameter(torch.empty(4 * units))

    def initialise(self, seed: int) -> None:
        """Draw every parameter uniformly within `1 / sqrt(units)`."""
        generator, bound = torch.Generator().manual_seed(seed), 1 / math.sqrt(self.units)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def step(self, x: Tensor, state: State) -> State:
        """The state after one step with inputs `[B, I]`; its `h` is the output."""
        return self.after(self.gates(x), state)

    def gates(self, x: Tensor) -> Tensor:
        """The part of the gates `[..., 4 H]` from inputs `[..., I]`: one matrix product for all steps at once."""
        return nn.functional.linear(x, self.weight_ih, self.bias_ih)

    def after(self, gates: Tensor, state: State) -> State:
        """The state after a step whose inputs have added `gates` `[B, 4 H]`."""
        h, c = state
        gates = gates + nn.functional.linear(h, self.weight_hh, self.bias_hh)
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def forward(self, x: Tensor, state: State) -> Tensor:
        """Outputs `[B, T, H]` of inputs `[B, T, I]`."""
        if not _plain:
            return self._sequence(x, state)[0]
        outputs = []
        for gates in self.gates(x).unbind(1):
            state = self.after(gates, state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1)

    def episodes(self, x: Tensor, first: Tensor, state: State) -> Tensor:
        """Outputs `[B, T, H]` of inputs, from the `state` before them.

        An episode begins where `first` `[B, T]` is true: the state is zero there.

        Between two steps at which an episode of the batch begins, one fused call computes all sequences.
        """
        cuts = [0, *(first[:, 1:].any(dim=0).nonzero().flatten() + 1).tolist(), x.shape[1]]
        outputs = []
        for start, stop in pairwise(cuts):
            goes_on = ~first[:, start, None]
            part, state = self._sequence(x[:, start:stop], (state[0] * goes_on, state[1] * goes_on))
            outputs.append(part)
        return torch.cat(outputs, dim=1)

    def _sequence(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = (one.unsqueeze(0).contiguous() for one in state)
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        # The layer has no dropout: cuDNN keeps the values for a backward pass only in training mode.
        train = torch.is_grad_enabled()
        outputs, h, c = torch.lstm(x, [h, c], weights, True, 1, 0.0, train, False, True)
        return outputs, (h[0], c[0])
