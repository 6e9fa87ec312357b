"""The recurrent layer as one fused call, where gradients are computed and where not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from reverie.agents.layers import initialised  # noqa: E402
from reverie.agents.lstm import Lstm  # noqa: E402

TRAIN = 6
"""The place of `train` among the arguments of `torch.lstm`."""


def sequences(device="cpu"):
    """A layer, inputs `[3, 5, 4]` and a state, the same on every device."""
    layer = initialised(lambda: Lstm(4, 6), seed=2).to(device)
    random = torch.Generator().manual_seed(3)
    x, h, c = (torch.randn(*shape, generator=random).to(device) for shape in ((3, 5, 4), (3, 6), (3, 6)))
    return layer, x, (h, c)


@pytest.mark.parametrize("gradients", [True, False])
def test_cudnn_is_asked_for_its_training_mode_exactly_where_gradients_are_computed(monkeypatch, gradients):
    asked, lstm = [], torch.lstm
    monkeypatch.setattr(torch, "lstm", lambda *arguments: asked.append(arguments[TRAIN]) or lstm(*arguments))
    layer, x, state = sequences()
    with torch.set_grad_enabled(gradients):
        layer(x, state)
        layer.episodes(x, torch.zeros(3, 5, dtype=torch.bool), state)
    assert asked == [gradients, gradients]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_outputs_and_gradients_on_a_gpu_are_those_of_the_processor():
    results = []
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for device in ("cpu", "cuda"):
            layer, x, state = sequences(device)
            outputs = layer(x, state)
            outputs.square().sum().backward()
            results.append([outputs, *(parameter.grad for parameter in layer.parameters())])
    for here, there in zip(*results, strict=True):
        torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-5)
