"""docs/guides/environments.md: from which shape on an array is an image, and the parts that a user's layers receive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import gymnasium
import torch
from gymnasium import spaces
from gymnasium.spaces import Box

from reverie.agents.env_settings import EnvSettings
from reverie.agents.environments import describe
from reverie.agents.inputs import by_name
from reverie.agents.observations import leaves_of
from reverie.agents.own_layers import sample_observations

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "environments.md").read_text()


def is_image(shape: tuple[int, ...], dtype: type) -> bool:
    (leaf,) = leaves_of(Box(0, 255 if dtype is np.uint8 else 1, shape, dtype))
    return leaf.kind == "image"


def test_the_page_has_the_smallest_images_and_the_most_channels() -> None:
    (row,) = re.findall(r"\n\| (`Box` `\[H, W, C\]`.*?) \| an image,", PAGE)
    three_axes, two_axes = row.split("; ")
    side, channels = map(int, re.findall(r"from (\d+) a side, with at most (\d+) channels", three_axes)[0])
    assert three_axes.startswith("`Box` `[H, W, C]` or `[C, H, W]` of bytes, booleans or floats within [0, 1]")
    for dtype in (np.uint8, np.bool_, np.float32):
        assert is_image((side, side, 1), dtype)
        assert is_image((channels, 64, 64), dtype)
        assert not is_image((side - 1, side, 1), dtype)
        assert not is_image((channels + 1, 64, 64), dtype)
    (least,) = map(int, re.findall(r"`\[H, W\]` of bytes or booleans, from (\d+) a side", two_axes))
    for dtype in (np.uint8, np.bool_):
        assert is_image((least, least), dtype)
        assert not is_image((least - 1, least), dtype)
    assert not is_image((64, 64), np.float32)


class Sampled(gymnasium.Env[Any, Any]):
    """Observations are samples of a space."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


CAR = spaces.Dict(
    {
        "image": Box(0, 255, (12, 12, 3), np.uint8),
        "speed": Box(-np.inf, np.inf, (4,), np.float64),
        "gear": spaces.Discrete(3, start=1),
        "lights": spaces.MultiDiscrete([3, 2]),
        "on": spaces.MultiBinary(2),
    }
)
ALONE = {
    "Discrete": (spaces.Discrete(5, start=2), (1,), torch.int32),
    "MultiDiscrete": (spaces.MultiDiscrete([3, 2]), (2,), torch.int32),
    "MultiBinary": (spaces.MultiBinary(2), (2,), torch.int8),
    "Float64": (Box(-1, 1, (3,), np.float64), (3,), torch.float64),
    "Int64": (Box(-5, 5, (4, 3), np.int64), (4, 3), torch.int64),
    "Number": (Box(-1, 1, (), np.float32), (1,), torch.float32),
    "Image": (Box(0, 255, (12, 12, 3), np.uint8), (12, 12, 3), torch.uint8),
    "Image64": (Box(0, 1, (12, 12, 3), np.float64), (12, 12, 3), torch.float32),
}
for _name, _space in {"Car": CAR, **{name: space for name, (space, _, _) in ALONE.items()}}.items():
    gymnasium.register(f"ReveriePage{_name}-v0", Sampled, kwargs={"space": _space}, max_episode_steps=9)


@pytest.mark.parametrize("frames", [None, 2])
@pytest.mark.parametrize("name", ALONE)
def test_layers_receive_observations_as_the_table_of_the_page_has_them(name: str, frames: int | None) -> None:
    _, shape, dtype = ALONE[name]
    spec = describe(f"ReveriePage{name}-v0", EnvSettings(frame_stack=frames))
    rows = sample_observations(spec, 5)
    assert (rows.shape, rows.dtype) == ((5, *([] if frames is None else [frames]), *shape), dtype)
    assert spec.num_inputs == rows.flatten(1).shape[1]


def test_the_layers_of_the_page_read_the_nest_that_they_describe() -> None:
    spec = describe("ReveriePageCar-v0")
    rows = sample_observations(spec, 5)
    parts = by_name(spec, rows)
    assert {name: (*part.shape[1:], part.dtype) for name, part in parts.items()} == {
        "image": (12, 12, 3, torch.uint8),
        "speed": (4, torch.float32),
        "gear": (1, torch.int32),
        "lights": (2, torch.int32),
        "on": (2, torch.int8),
    }
    (block,) = re.findall(r"^```python\n([^`]*class Both.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(block, namespace)
    layers = namespace["Both"](spec)
    features = layers(rows)
    assert features.shape == (5, 64)
    exported = torch.cat([part.flatten(1).float() for part in parts.values()], dim=1)
    assert torch.equal(layers(exported), features)
