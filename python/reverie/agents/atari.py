"""Atari games by the rules of Mnih et al. 2015 (Methods, and extended data table 1): frames, lives and rewards.

Every action is repeated for four frames; the maximum of the last two is made grey and scaled to 84 x 84. An episode
begins with up to 30 frames of no action and has at most 108,000 frames (half an hour). ale-py does this in C++. This
module does the rest: stacks of four frames, each frame stored once; a lost life as the end of a training episode;
rewards within [-1, 1] for learning. Returns are the points of whole games.

The id selects the other settings, as ale-py registers them: `ALE/Pong-v5` repeats the last action with probability 0.25
(Machado et al. 2018), `PongNoFrameskip-v4` never, as in papers before 2018.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from reverie.agents.env_errors import UnknownEnvironmentError, UnsupportedEnvironmentError
from reverie.agents.env_ids import nearest_environments
from reverie.agents.env_settings import DEFAULTS, EnvSettings
from reverie.agents.env_spec import EnvSpec

FRAME_STACK = 4
FRAME_SHAPE = (84, 84)
FRAME_SKIP = 4
NOOPS = 30
FRAMES_PER_EPISODE = 108_000
REWARD_BOUND = 1.0


def is_game(env_id: str) -> bool:
    """Whether the id is one of ale-py's: `ALE/...`, or one without a frame skip of its own."""
    return env_id.startswith("ALE/") or "NoFrameskip-" in env_id


def describe(env_id: str, settings: EnvSettings) -> EnvSpec:
    """The description of a game, for `environments.describe`. Raises the same errors."""
    _refuse_settings(env_id, settings)
    envs = make_envs(env_id, 1, settings)
    return EnvSpec(
        env_id=env_id,
        obs_shape=(FRAME_STACK, *FRAME_SHAPE),
        obs_dtype="uint8",
        num_actions=int(envs.single_action_space.n),
        action_space=str(envs.single_action_space),
        reward_threshold=None,
        frame_stack=FRAME_STACK,
        reward_bound=REWARD_BOUND,
        settings=settings,
    )


def _refuse_settings(env_id: str, settings: EnvSettings) -> None:
    """Raise `UnsupportedEnvironmentError` for settings of games that these rules fix."""
    if settings.wrappers:
        raise UnsupportedEnvironmentError(
            f"wrappers is {list(settings.wrappers)}, and {env_id} is played by the rules of the papers, without"
            " wrappers: leave it out"
        )
    for name in ("frame_stack", "normalise_observations"):
        if value := getattr(settings, name):
            raise UnsupportedEnvironmentError(
                f"{name} is {value}, and {env_id} is played by the rules of the papers: stacks of {FRAME_STACK} frames,"
                " scaled by the network; leave it out"
            )


def make_envs(env_id: str, num_envs: int, settings: EnvSettings = DEFAULTS) -> Any:
    """ale-py's own vector of games with single frames, unclipped rewards and lives, under SAME_STEP autoreset.

    Its `episodic_life` is not used: it starts a new game after the first lost life, so that later lives are not played.
    Raises `UnsupportedEnvironmentError` without ale-py, `UnknownEnvironmentError` for an id that it does not have.
    """
    try:
        import ale_py
        from ale_py.vector_env import AtariVectorEnv
    except ImportError as error:
        raise UnsupportedEnvironmentError(
            f'{env_id} needs a package that is not installed: pip install "reverie[atari]"'
        ) from error
    gymnasium.register_envs(ale_py)
    known = gymnasium.registry.get(env_id)
    if known is None:
        raise UnknownEnvironmentError(env_id, "ale-py has no game of this id", nearest_environments(env_id))
    limit = settings.time_limit
    return AtariVectorEnv(
        known.kwargs["game"],
        num_envs,
        num_threads=1,
        max_num_frames_per_episode=FRAMES_PER_EPISODE if limit is None else limit * FRAME_SKIP,
        repeat_action_probability=known.kwargs["repeat_action_probability"],
        full_action_space=known.kwargs["full_action_space"],
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
        img_height=FRAME_SHAPE[0],
        img_width=FRAME_SHAPE[1],
        stack_num=1,
        frameskip=FRAME_SKIP,
        maxpool=True,
        noop_max=NOOPS,
        use_fire_reset=False,
        reward_clipping=False,
    )


class GameVector:
    """Games that step together: frames `[N, 84, 84]` uint8, rewards in the game's points, ends of whole games.

    The step that ends a game returns the first frame of the next one, and the last frame of the old one as
    `info["final_obs"]` (for other games: the frame itself). `info["life_lost"]` is true where a life was lost and the
    game continues.
    """

    same_step = True

    def __init__(self, env_id: str, num_envs: int, settings: EnvSettings = DEFAULTS, *, envs: Any = None) -> None:
        self._envs = make_envs(env_id, num_envs, settings) if envs is None else envs
        self._lives = np.zeros(num_envs, dtype=np.int64)

    def reset(self, *, seed: int) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin new games; game i has the seed `seed + i`."""
        frames, info = self._envs.reset(seed=seed)
        self._lives = np.array(info["lives"])
        return frames[:, 0], {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Play four frames of every game; returns frames, rewards, terminated, truncated, info."""
        stacked, reward, terminated, truncated, info = self._envs.step(np.asarray(actions))
        frames, over = stacked[:, 0], terminated | truncated
        lives = np.array(info["lives"])
        life_lost = (lives < self._lives) & ~over
        self._lives = lives
        final = frames
        if over.any():
            final = frames.copy()
            final[over] = info["final_obs"][over, 0]
        return frames, reward, terminated, truncated, {"final_obs": final, "life_lost": life_lost}

    def close(self) -> None:
        """Nothing to close: ale-py ends its threads with the object."""


class Game(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """One game for the evaluator: whole games with their own points, stacks `[4, 84, 84]`."""

    def __init__(self, env_id: str, settings: EnvSettings = DEFAULTS) -> None:
        envs = make_envs(env_id, 1, settings)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 60 // FRAME_SKIP}
        self.action_space = envs.single_action_space
        self.observation_space = spaces.Box(0, 255, (FRAME_STACK, *FRAME_SHAPE), np.uint8)
        self._games = GameVector(env_id, 1, envs=envs)
        self._stacks = FrameStacks(1, (FRAME_STACK, *FRAME_SHAPE))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin a new game."""
        super().reset(seed=seed)
        frames, info = self._games.reset(seed=int(self.np_random.integers(2**31)) if seed is None else seed)
        return self._stacks.begin(frames)[0].copy(), info

    def step(self, action: Any) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Play four frames; a lost life does not end the episode."""
        _, reward, terminated, truncated, info = self._games.step(np.array([action], dtype=np.int64))
        stacks = self._stacks.step(info["final_obs"], np.zeros(1, dtype=np.bool_))
        return stacks[0].copy(), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def render(self) -> NDArray[np.uint8]:
        """The newest frame of the agent's observation, enlarged four times, `[336, 336, 3]`."""
        enlarged = self._stacks.now[0, -1].repeat(4, axis=0).repeat(4, axis=1)
        return np.repeat(enlarged[:, :, None], 3, axis=2)


class FrameStacks:
    """The newest frames of `num_envs` environments, oldest first, as `transition_writer(frame_stack=...)` stacks them.

    At an episode's start the first frame is repeated.
    """

    def __init__(self, num_envs: int, shape: tuple[int, ...], dtype: str = "uint8") -> None:
        self.now: NDArray[Any] = np.zeros((num_envs, *shape), dtype=dtype)
        """`[N, K, ...]`; the next call writes into it."""

    def begin(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Begin all episodes with `frames` `[N, ...]`."""
        self.now[:] = frames[:, None]
        return self.now

    def step(self, frames: NDArray[Any], fresh: NDArray[np.bool_]) -> NDArray[Any]:
        """Add one frame per environment; where `fresh` `[N]` is true it is the first of an episode."""
        self.now[:, :-1] = self.now[:, 1:]
        self.now[:, -1] = frames
        self.now[fresh] = frames[fresh][:, None]
        return self.now

    def after(self, frames: NDArray[Any], which: NDArray[np.bool_]) -> NDArray[Any]:
        """The stacks of `which` with one more frame, `[which.sum(), K, ...]`, without changing them."""
        return np.concatenate([self.now[which, 1:], frames[which][:, None]], axis=1)


class EpisodeEnds(NamedTuple):
    """The ends of training episodes in one step."""

    terminated: NDArray[np.bool_]
    """True where a game is over or a life was lost."""
    final_obs: NDArray[Any]
    """Frames `[N, ...]` after the actions, before any reset."""
    truncated_stacks: NDArray[Any]
    """The last stacks of truncated games, `[truncated.sum(), K, ...]`."""


class LifeStacks:
    """Frame stacks for acting, and training episodes that end with a lost life."""

    def __init__(self, num_envs: int, shape: tuple[int, ...], dtype: str = "uint8") -> None:
        self._stacks = FrameStacks(num_envs, shape, dtype)

    @property
    def seen(self) -> NDArray[Any]:
        """Observations `[N, K, ...]` to act on."""
        return self._stacks.now

    def begin(self, frames: NDArray[Any]) -> None:
        """Begin new games in all environments."""
        self._stacks.begin(frames)

    def step(
        self,
        frames: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        info: dict[str, Any],
    ) -> EpisodeEnds:
        """Add the results of `GameVector.step`; returns the ends of training episodes."""
        over = terminated | info["life_lost"]
        final = info["final_obs"]
        last = self._stacks.after(final, truncated)
        self._stacks.step(frames, over | truncated)
        return EpisodeEnds(over, final, last)
