"""The rows of `python -m benchmarks.frameworks tianshou`, in tianshou's environment."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer

from benchmarks.workers import turns
from benchmarks.workers.turns import IMAGES, LONG, SHORT, VECTORS, Options, ServerProcess, Way, server_process
from reverie.integrations.tianshou import PrioritizedReplayBuffer, ReplayBuffer

BATCH = 256
#: As tianshou's examples for Atari store frames: the newest of each stack, once.
ONCE = {"stack_num": 4, "save_only_last_obs": True, "ignore_obs_next": True}
PRIORITIES = {"alpha": 0.6, "beta": 0.4}


def vector_steps(observations: Sequence[Any], num: int, length: int) -> list[Any]:
    """Steps as a collector adds them, of `num` environments, which have the same observations in another order."""
    count = len(observations) - 1
    rows = [np.arange(env * 7, env * 7 + count + 1) % (count + 1) for env in range(num)]
    columns = [[observations[place] for place in row] for row in rows]
    found = []
    for step in range(count):
        ends = np.full(num, step % length == length - 1 or step == count - 1)
        found.append(
            Batch(
                obs=np.stack([column[step] for column in columns]),
                obs_next=np.stack([column[step + 1] for column in columns]),
                act=np.full(num, step % 2),
                rew=np.ones(num),
                terminated=ends,
                truncated=np.zeros(num, bool),
                done=ends,
                info=Batch(env_id=np.arange(num)),
            )
        )
    return found


def numbers(count: int) -> list[Any]:
    """Observations of four numbers."""
    return list(np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32))


def noise(count: int) -> list[Any]:
    """Stacks of four frames of noise."""
    return turns.stacks(np.random.default_rng(0).integers(0, 256, (count + 3, 84, 84), np.uint8), 0)


def filled(buffer: Any, steps: Sequence[Any], size: int) -> Any:
    """A buffer after `size` transitions."""
    num = len(steps[0].rew)
    for batch in itertools.islice(itertools.cycle(steps), size // num):
        buffer.add(batch, np.arange(num))
    return buffer


def kinds(size: int, num: int, priorities: bool, server: ServerProcess, **options: Any) -> dict[str, Any]:
    """Buffers of the same size: tianshou's, and ours in this process and on a server."""
    ours, theirs = (PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer)
    extra = PRIORITIES if priorities else {}
    if not priorities:
        ours, theirs = ReplayBuffer, VectorReplayBuffer
    on_server = {"beta": 0.4} if priorities else {}
    return {
        "tianshou": theirs(size, num, **extra),
        "Reverie": ours(size, num, **extra, **options),
        "Reverie, server": ours(size, num, server=server.address, n_step=options.get("n_step", 1), **on_server),
    }


def adds(name: str, num: int, observe: Callable[[int], list[Any]], size: int, compression: str = "auto") -> Any:
    """A row of `add` of one step of `num` environments into full buffers."""

    def run(options: Options) -> list[dict[str, Any]]:
        count = options.size(size)
        steps = vector_steps(observe(min(count // num, 513)), num, SHORT)
        with server_process("prioritized", count, compression) as server:
            ways = {}
            for kind, buffer in kinds(count, num, True, server, compression=compression).items():
                filled(buffer, steps, count)
                ways[kind] = Way(adder(buffer, steps), buffer.__len__, server.pid if "server" in kind else None)
            return [turns.in_turns(name, options, ways)]

    return run


def adder(buffer: Any, steps: Sequence[Any]) -> Callable[[], None]:
    """Adds the next step of all environments."""
    following, ids = itertools.cycle(steps), np.arange(len(steps[0].rew))
    return lambda: buffer.add(next(following), ids)


def target(buffer: Any, indices: Any) -> torch.Tensor:
    """Values of the observations after n steps, which the target network would read."""
    return torch.as_tensor(buffer[indices].obs_next.reshape(len(indices), -1)[:, :1].astype(np.float32))


def draw(buffer: Any, n_step: int, priorities: bool) -> Callable[[], None]:
    """A draw, then n-step returns as tianshou's algorithms compute them, then new priorities."""
    errors = torch.rand(BATCH)

    def call() -> None:
        batch, indices = buffer.sample(BATCH)
        if n_step:
            Algorithm.compute_nstep_return(batch, buffer, indices, target, 0.99, n_step)
        if priorities:
            buffer.update_weight(indices, errors)

    return call


def draws(
    name: str, observe: Callable[[int], list[Any]], size: int, n_step: int = 0, priorities: bool = True, **table: Any
) -> Any:
    """A row of draws of 256 from full buffers of four environments; `n_step` 0 does without returns."""

    def run(options: Options) -> list[dict[str, Any]]:
        count = options.size(size)
        steps = vector_steps(observe(min(count // 4, 1025)), 4, LONG)
        sampler = "prioritized" if priorities else "uniform"
        with server_process(sampler, count, table.get("compression", "auto")) as server:
            buffers = kinds(count, 4, priorities, server, n_step=max(n_step, 1), **table)
            if observe is noise:
                buffers["tianshou, frames once"] = PrioritizedVectorReplayBuffer(count, 4, **PRIORITIES, **ONCE)
            ways = {}
            for kind, buffer in buffers.items():
                len(filled(buffer, steps, count))
                ways[kind] = Way(draw(buffer, n_step, priorities), server=server.pid if "server" in kind else None)
            return [turns.in_turns(name, options, ways)]

    return run


def memory(options: Options) -> list[dict[str, Any]]:
    """Bytes of a step of one environment, in a buffer that is as large as its steps."""
    return [remember(name, seen) for name, seen in turns.observations(options, options.size(VECTORS), 0)]


def remember(name: str, seen: Sequence[Any]) -> dict[str, Any]:
    """The row of memory for such observations."""
    count = len(seen) - 1
    ways: dict[str, Callable[[], Any]] = {
        "tianshou": lambda: VectorReplayBuffer(count, 1),
        "Reverie": lambda: ReplayBuffer(count, 1),
        "Reverie, compression none": lambda: ReplayBuffer(count, 1, compression="none"),
    }
    if seen[0].ndim > 1:
        ways["tianshou, frames once"] = lambda: VectorReplayBuffer(count, 1, **ONCE)
    row = turns.Memory(name, count)
    for kind, made in ways.items():
        row.measure(kind, lambda size, made=made: remembered(made(), seen[: size + 1]))  # type: ignore[misc]
    with server_process("uniform", count) as server:
        row.measure(
            "Reverie, server",
            lambda size: remembered(ReplayBuffer(count, 1, server=server.address), seen[: size + 1]),
            server.pid,
        )
    return row.shown()


def remembered(buffer: Any, seen: Sequence[Any]) -> Any:
    """A buffer with the steps between observations; the steps are made one by one."""
    last = len(seen) - 2
    for step in range(len(seen) - 1):
        end = np.array([step % LONG == LONG - 1 or step == last])
        columns = {"act": np.array([step % 2]), "rew": np.ones(1), "terminated": end, "truncated": np.zeros(1, bool)}
        info = Batch(env_id=np.arange(1))
        buffer.add(Batch(obs=seen[step][None], obs_next=seen[step + 1][None], done=end, info=info, **columns), [0])
    len(buffer)
    return buffer


ROWS: dict[str, Any] = {
    "memory": memory,  # First: each is measured in a copy of the process.
    "add": adds("add, 1 environment, 4 numbers", 1, numbers, VECTORS),
    "vector": adds("add, 8 environments, 4 numbers", 8, numbers, VECTORS),
    "add-images": adds("add, 1 environment, 4 x 84 x 84 noise", 1, noise, IMAGES, "none"),
    "uniform": draws("256, uniform, 4 numbers", numbers, VECTORS, priorities=False),
    "prioritised": draws("256 and priorities, 4 numbers", numbers, VECTORS),
    "one-step": draws("256, 1-step returns, priorities, 4 numbers", numbers, VECTORS, 1),
    "three-steps": draws("256, 3-step returns, priorities, 4 numbers", numbers, VECTORS, 3),
    "images": draws("256 and priorities, 4 x 84 x 84 noise", noise, IMAGES, compression="none"),
    "images-three-steps": draws("256, 3-step returns, 4 x 84 x 84 noise", noise, IMAGES, 3, compression="none"),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    turns.main("tianshou-buffers", ("tianshou", "torch"), ROWS)
