"""docs/guides/environments.md has the shapes from which on networks read an array as an image."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from gymnasium.spaces import Box

from reverie.agents.observations import leaves_of

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
