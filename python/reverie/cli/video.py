"""One greedy episode as a video."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from reverie.agents.environments import EnvSpec

DEFAULT_FPS = 30


class VideoError(ValueError):
    """The video cannot be written; the text names what is missing."""


def check(path: Path) -> None:
    """Check before the episode that the video can be written. Raises `VideoError`, OSError."""
    missing = [name for name in ("moviepy", "pygame") if importlib.util.find_spec(name) is None]
    if missing:
        raise VideoError(f'{" and ".join(missing)} not installed: pip install "reverie[video]"')
    if path.suffix != ".mp4":
        raise VideoError(f"video is {str(path)!r}, and must end in .mp4")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise VideoError(f"video {path} cannot be written: name a file in a writable folder")


def record(
    spec: EnvSpec | str, policy: Callable[[NDArray[Any]], NDArray[Any]], seed: int, path: Path
) -> tuple[float, int]:
    """Play one episode from `seed` and write it; returns its undiscounted return, and the number of frames.

    Atari games show the agent's observations: a grey frame for every four of the game. Frames go to the encoder one
    by one. Blocks until the episode is over.
    """
    from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter

    from reverie.agents.environments import PICTURES, make_one
    from reverie.agents.episodes import Episodes

    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # nothing is shown: no display is needed
    env = make_one(spec if isinstance(spec, str) else spec.for_evaluation(), render_mode=PICTURES)
    episode = Episodes(policy, 1)
    writer, frames, total, over = None, 0, 0.0, False
    try:
        obs, _ = env.reset(seed=seed)
        while True:
            picture = _even(np.asarray(env.render()))
            if writer is None:
                fps = env.metadata.get("render_fps", DEFAULT_FPS)
                writer = FFMPEG_VideoWriter(str(path), (picture.shape[1], picture.shape[0]), fps)
            try:
                writer.write_frame(picture)
            except OSError as error:  # its text ends with the encoder's output, in several lines
                raise VideoError(
                    f"video {path} cannot be written: {str(error).strip().splitlines()[-1].strip()}"
                ) from error
            frames += 1
            if over:
                return total, frames
            obs, reward, terminated, truncated, _ = env.step(episode.actions(obs[None], [0])[0])
            total += float(reward)
            over = terminated or truncated
    finally:
        if writer is not None:
            writer.close()
        env.close()


def _even(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The encoder takes even heights and widths."""
    return np.ascontiguousarray(picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2])
