"""The rows of `python -m benchmarks.frameworks rllib`, in RLlib's environment."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer as Theirs

from benchmarks.workers import turns
from benchmarks.workers.turns import IMAGES, LONG, SHORT, VECTORS, Options, Way
from reverie.integrations.rllib import PrioritizedEpisodeReplayBuffer as Ours

BATCH = 256


def episodes(observations: Sequence[Any], length: int, part: int) -> Iterator[SingleAgentEpisode]:
    """Parts of so many steps, as an env runner returns them: arrays, with the observation before as their lookback."""
    places = itertools.cycle(range(len(observations)))
    while True:
        episode = SingleAgentEpisode()
        episode.add_env_reset(observations[next(places)], {})
        for step in range(length):
            observation = observations[next(places)]
            episode.add_env_step(observation, step % 2, 1.0, {}, terminated=step == length - 1)
            if episode.is_done or (step + 1) % part == 0:
                following = None if episode.is_done else episode.cut(len_lookback_buffer=1)
                yield episode.to_numpy()
                if following is not None:
                    episode = following


def numbers(count: int) -> list[Any]:
    """Observations of four numbers."""
    return list(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))


def noise(count: int) -> list[Any]:
    """Stacks of four frames of noise, along the last axis as RLlib's wrapper makes them."""
    return turns.stacks(np.random.default_rng(0).integers(0, 256, (count + 3, 84, 84), np.uint8), -1)


def kinds(size: int, address: str, uniform: bool = False, n_step: int = 1, **table: Any) -> dict[str, Any]:
    """Buffers of the same size: RLlib's, and ours in this process and on a server."""
    return {
        "RLlib": EpisodeReplayBuffer(size) if uniform else Theirs(size, alpha=0.6),
        "Reverie": Ours(size, alpha=0.0 if uniform else 0.6, n_step=n_step, **table),
        "Reverie, server": Ours(n_step=n_step, server=address),
    }


def adds(name: str, observe: Callable[[int], list[Any]], size: int, part: int, at_once: int = 1, **table: Any) -> Any:
    """A row of `add` into full buffers: `at_once` parts of `part` steps, each of another environment."""

    def run(options: Options) -> list[dict[str, Any]]:
        count, length = options.size(size), LONG if observe is numbers else SHORT
        seen = observe(min(count, 1_000))
        with turns.server_process("prioritized", count, **table) as server:
            ways = {}
            for kind, buffer in kinds(count, server.address, **table).items():
                fill(buffer, seen, count, length)
                environments = [episodes(seen, length, part) for _ in range(at_once)]
                # Made before the turns, which then add them one after another, and begin again with other ids.
                calls = [[next(env) for env in environments] for _ in range(options.size(PARTS) // (part * at_once))]
                ways[kind] = Way(adder(buffer, calls), buffer.__len__, server.pid if "server" in kind else None)
            return [turns.in_turns(name, options, ways)]

    return run


#: The steps of the parts that a row of `add` has.
PARTS = 4_000


def adder(buffer: Any, calls: list[list[Any]]) -> Callable[[], None]:
    """Adds the next list of parts. When all were added, they are added again as parts of other episodes."""
    turn, rounds = itertools.cycle(enumerate(calls)), itertools.count()

    def call() -> None:
        place, parts = next(turn)
        if place == 0 and next(rounds):
            for part in {id(part): part for parts in calls for part in parts}.values():
                part.id_ = f"{part.id_}+"
        buffer.add(parts)

    return call


def fill(buffer: Any, seen: Sequence[Any], size: int, length: int) -> None:
    """Adds whole episodes of so many steps in all."""
    for episode in itertools.islice(episodes(seen, length, length), size // length):
        buffer.add(episode)
    len(buffer)


def draw(buffer: Any, n_step: int, priorities: bool, arrays: bool) -> Callable[[], None]:
    """A draw as RLlib's DQN calls it, then new priorities."""
    errors = np.random.default_rng(0).random(BATCH)

    def call() -> None:
        drawn = buffer.sample(num_items=BATCH, n_step=n_step, gamma=0.99, beta=0.4, sample_episodes=True)
        if arrays:  # As the learner's connectors make them, of every observation.
            for place in (0, 1):
                np.stack([episode.get_observations(place) for episode in drawn])
        if priorities:
            buffer.update_priorities(errors)

    return call


def draws(
    name: str,
    observe: Callable[[int], list[Any]],
    size: int,
    n_step: int = 1,
    priorities: bool = True,
    arrays: bool = False,
    **table: Any,
) -> Any:
    """A row of draws of 256 from full buffers. Uniform draws of ours have alpha 0."""

    def run(options: Options) -> list[dict[str, Any]]:
        count, length = options.size(size), LONG if observe is numbers else SHORT
        seen = observe(min(count, 1_000))
        with turns.server_process("prioritized" if priorities else "alpha-0", count, **table) as server:
            ways = {}
            for kind, buffer in kinds(count, server.address, not priorities, n_step, **table).items():
                fill(buffer, seen, count, length)
                call = draw(buffer, n_step, priorities, arrays)
                ways[kind] = Way(call, server=server.pid if "server" in kind else None)
            return [turns.in_turns(name, options, ways)]

    return run


def memory(options: Options) -> list[dict[str, Any]]:
    """Bytes of a step of whole episodes, in a buffer that is as large as its steps."""
    return [remember(name, seen) for name, seen in turns.observations(options, options.size(VECTORS), -1)]


def remember(name: str, seen: Sequence[Any]) -> dict[str, Any]:
    """The row of memory for such observations."""
    length = LONG if seen[0].ndim == 1 else SHORT
    count = len(seen) // (length + 1) * length
    ways: dict[str, Callable[[], Any]] = {
        "RLlib": lambda: Theirs(count),
        "Reverie": lambda: Ours(count),
        "Reverie, compression none": lambda: Ours(count, compression="none"),
    }
    row = turns.Memory(name, count)
    for kind, made in ways.items():
        row.measure(kind, lambda size, made=made: filled(made(), seen, size, length))  # type: ignore[misc]
    with turns.server_process("prioritized", count) as server:
        row.measure("Reverie, server", lambda size: filled(Ours(server=server.address), seen, size, length), server.pid)
    return row.shown()


def filled(buffer: Any, *arguments: Any) -> Any:
    """A buffer after `fill`."""
    fill(buffer, *arguments)
    return buffer


ROWS: dict[str, Any] = {
    "memory": memory,  # First: each is measured in a copy of the process.
    "add": adds("add of 1 step, 4 numbers", numbers, VECTORS, 1),
    "vector": adds("add of 1 step of 8 environments, 4 numbers", numbers, VECTORS, 1, at_once=8),
    "episode": adds("add of an episode of 200 steps, 4 numbers", numbers, VECTORS, LONG),
    "add-images": adds("add of an episode of 50 steps, 4 x 84 x 84 noise", noise, IMAGES, SHORT, compression="none"),
    "uniform": draws("256, uniform, 4 numbers", numbers, VECTORS, priorities=False),
    "prioritised": draws("256 and priorities, 4 numbers", numbers, VECTORS),
    "three-steps": draws("256 of 3 steps and priorities, 4 numbers", numbers, VECTORS, 3),
    "images": draws("256 and priorities, 4 x 84 x 84 noise", noise, IMAGES, arrays=True, compression="none"),
}

if __name__ == "__main__":
    turns.main("rllib-buffers", ("ray",), ROWS)
