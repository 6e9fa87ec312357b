"""Processor time of an update on one thread: compiled, by single operations, and of Stable-Baselines3.

`python -m benchmarks.updates` prints a row for each agent; `--rows sac` chooses, `--out FILE` also writes JSON. All
ways of a row do the same work on batches of their own replay buffers, and take turns. Figures are medians of processor
time, which other work on the machine changes less than wall time. If an update is several gradient steps, a figure
is that of one of them, on the same unrolls each time.
"""

from __future__ import annotations

import argparse
import cProfile
import dataclasses
import datetime
import json
import platform
import pstats
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import reverie
from reverie import agents, rate_limiters
from reverie.agents.compiling import CompileError, UpdateCompiler
from reverie.agents.core import CompilePlan, Stopwatch
from reverie.agents.environments import UnknownEnvironmentError, describe
from reverie.types import Batch

ROWS: dict[str, dict[str, Any]] = {
    "dqn": {"env": "CartPole-v1", "batch_size": 128, "hidden": (128, 128)},
    "apex-dqn": {"env": "CartPole-v1", "batch_size": 128, "hidden": (128, 128)},
    "td3": {"env": "Pendulum-v1", "batch_size": 256, "policy_hidden": (256, 256), "critic_hidden": (256, 256)},
    "sac": {"env": "Pendulum-v1", "batch_size": 256, "policy_hidden": (256, 256), "critic_hidden": (256, 256)},
    "ddpg": {"env": "Pendulum-v1", "batch_size": 256, "policy_hidden": (256, 256), "critic_hidden": (256, 256)},
    "iql": {"env": "Pendulum-v1"},
    "impala": {"env": "CartPole-v1"},
    "ppo": {"env": "CartPole-v1", "num_actors": 1, "envs_per_actor": 8, "unroll_length": 32, "hidden": (64, 64)},
    "r2d2": {"env": "CartPole-v1"},
    "dqn, MinAtar": {"agent": "dqn", "env": "MinAtar/Breakout-v0"},
    "apex-dqn, MinAtar": {"agent": "apex-dqn", "env": "MinAtar/Breakout-v0"},
    "rainbow, MinAtar": {"agent": "rainbow", "env": "MinAtar/Breakout-v0"},
    "sac, droq": {"agent": "sac", "env": "HalfCheetah-v5", "preset": "droq"},
}
UNROLLS = ("impala", "ppo")
"""Rows whose agents learn from unrolls out of a queue."""
ITEMS = 20_000
SEQUENCES = 200


class SameBatch:
    """A client that draws one batch again and again: unrolls without resets, as those of other libraries."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        batch.data["is_step"] = np.ones_like(batch.data["is_step"])

    def sample_batch(self, *_: Any, **options: Any) -> Batch:
        """The batch."""
        return self._batch


def learner(row: str, plan: CompilePlan | None) -> Any:
    """A learner of the row's agent, on unrolls of one batch or on a replay buffer of random transitions."""
    settings = dict(ROWS[row])
    agent, spec = agents.find(settings.pop("agent", row)), describe(settings.pop("env"))
    preset = settings.pop("preset", None)
    config = agent.load_preset(spec.env_id, preset and Path(preset)).config
    config = dataclasses.replace(config, **settings)
    made = (unrolls_learner if row in UNROLLS else FILLED.get(row, replay_learner))(agent, spec, config)
    if plan is not None:
        made.compile_updates(plan)
    return made


def unrolls_learner(agent: Any, spec: Any, config: Any) -> Any:
    """A learner on one batch of unrolls, which an actor has made."""
    with reverie.Server(agent.make_tables(spec, config, seed=0), listen=False) as server:
        client = server.client(timeout=0)
        made = agent.make_learner(spec, config, client, seed=0, watch=Stopwatch())
        needs = agent.needs(config)
        actor = agent.make_actor(spec, config, client, made, index=0, seed=0, watch=Stopwatch())
        while not client.can_sample(needs.name, needs.batch_size):
            actor.act()
        made._client = SameBatch(client.sample_batch(needs.name, needs.batch_size))
        actor.close()
    return made


def replay_learner(agent: Any, spec: Any, config: Any) -> Any:
    """A learner on a table full of random transitions, whose limiter lets every draw pass."""
    (table,) = agent.make_tables(spec, config, seed=0)
    server = reverie.Server([table], listen=False)
    client = server.client()
    client.configure(table.name, rate_limiter=rate_limiters.MinSize(1))
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(2, ITEMS, *spec.obs_shape))
    obs = obs > 1.0 if spec.obs_dtype == "bool" else obs.astype(np.float32)
    action = (
        rng.uniform(-1, 1, (ITEMS, spec.action_size)).astype(np.float32)
        if spec.action_size
        else rng.integers(spec.num_actions or 1, size=ITEMS)
    )
    columns = {
        "obs": obs[0],
        "action": action,
        "reward": rng.normal(size=ITEMS).astype(np.float32),
        "discount": np.full(ITEMS, 0.98, np.float32),
        "next_obs": obs[1],
        "weights_version": np.zeros(ITEMS, np.int64),
    }
    client.insert_batch(table.name, columns, priorities=rng.uniform(0.1, 2.0, ITEMS))
    made = agent.make_learner(spec, config, client, seed=0, watch=Stopwatch())
    made.server = server
    return made


def sequences_learner(agent: Any, spec: Any, config: Any) -> Any:
    """A learner on a table of sequences, which an actor has made; its limiter lets every draw pass."""
    (table,) = agent.make_tables(spec, config, seed=0)
    server = reverie.Server([table], listen=False)
    client = server.client()
    client.configure(table.name, rate_limiter=rate_limiters.MinSize(1))
    made = agent.make_learner(spec, config, client, seed=0, watch=Stopwatch())
    actor = agent.make_actor(spec, config, client, made, index=0, seed=0, watch=Stopwatch())
    while client.info().tables[table.name].current_size < SEQUENCES:
        actor.act()
    actor.close()
    made.server = server
    return made


FILLED = {"r2d2": sequences_learner}
"""Rows whose tables are filled by an actor."""


def eager(row: str) -> Callable[[], None]:
    """Updates by single operations: draw, update, figures."""
    learn: Callable[[], None] = learner(row, None).learn
    return learn


def compiled(row: str) -> Callable[[], None]:
    """The same by compiled graphs."""
    one = learner(row, CompilePlan(begin=0, use_from=1, required=True))
    for _ in range(10):
        one.learn()
    assert one.metrics()["updates_compiled"] > 0
    learn: Callable[[], None] = one.learn
    return learn


def compiled_alone(row: str) -> Callable[[], None]:
    """The compiled update alone, on one batch."""
    one = learner(row, CompilePlan(begin=0, use_from=1, required=True))
    for _ in range(10):
        one.learn()
    compiler: UpdateCompiler = one._compiler
    updates, state = compiler._updates, compiler._state
    assert updates is not None
    assert state is not None
    columns = next(iter(updates.values())).graph.columns

    def update() -> None:
        updates[one._kind(one.version)](one, state, columns)
        one.version += 1

    return update


def torch_compile(row: str) -> Callable[[], None]:
    """The same graphs through `torch.compile`, on one batch: what compiling gives without a call from outside."""
    one = learner(row, CompilePlan(begin=0, use_from=None, required=False))
    one.learn()
    one.stop_compiling()
    updates: dict[int, tuple[Callable[..., Any], list[torch.Tensor]]] = {}
    for kind, (graph, _) in one._compiler._graphs.items():
        inputs = [torch.empty_strided(size, stride, dtype=dtype).zero_() for size, stride, dtype in graph.shapes]
        updates[kind] = torch.compile(graph.module, dynamic=False, fullgraph=True), inputs

    def update() -> None:
        with torch.no_grad():
            function, inputs = updates[one._kind(one.version)]
            function(*inputs)[-1].tolist()
        one.version += 1

    return update


def sb3_ppo(settings: dict[str, Any]) -> Callable[[], None]:
    """Stable-Baselines3's PPO: an update of a full buffer of steps, with the settings of our preset."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.logger import configure

    config = dataclasses.replace(
        agents.find("ppo").load_preset(settings["env"]).config, **{k: v for k, v in settings.items() if k != "env"}
    )
    model = PPO(
        "MlpPolicy",
        make_vec_env(settings["env"], n_envs=config.batch_size, seed=0),
        n_steps=config.unroll_length,
        batch_size=config.minibatch_size,
        n_epochs=config.epochs,
        learning_rate=config.learning_rate,
        clip_range=config.clip,
        vf_coef=config.value_coefficient,
        ent_coef=config.entropy_coefficient,
        max_grad_norm=config.max_grad_norm,
        policy_kwargs={"net_arch": list(config.hidden), "activation_fn": torch.nn.ReLU},
        device="cpu",
        seed=0,
    )
    model.learn(total_timesteps=config.batch_size * config.unroll_length)  # fills the buffer, which stays full
    model.set_logger(configure(None, []))
    return model.train


def sb3(row: str) -> Callable[[], None]:
    """Stable-Baselines3's own update: draw and gradient step."""
    if row == "ppo":
        return sb3_ppo(ROWS[row])
    import gymnasium
    from stable_baselines3 import DDPG, DQN, SAC, TD3
    from stable_baselines3.common.logger import configure

    settings = ROWS[row]
    algorithm = {"dqn": DQN, "td3": TD3, "sac": SAC, "ddpg": DDPG}[row]
    env = gymnasium.make(settings["env"])
    widths = list(settings.get("hidden", settings.get("policy_hidden", ())))
    model = algorithm(
        "MlpPolicy",
        env,
        batch_size=settings["batch_size"],
        buffer_size=ITEMS,
        policy_kwargs={"net_arch": widths},
        device="cpu",
        seed=0,
    )
    model.set_logger(configure(None, []))
    rng = np.random.default_rng(0)
    for _ in range(ITEMS):
        before, after = rng.normal(size=(2, 1, *env.observation_space.shape)).astype(np.float32)
        action = np.array([env.action_space.sample()])
        model.replay_buffer.add(before, after, action, rng.normal(size=1), np.array([False]), [{}])
    batch_size = settings["batch_size"]
    return lambda: model.train(gradient_steps=1, batch_size=batch_size)


WAYS: dict[str, Callable[[str], Callable[[], None]]] = {
    "eager": eager,
    "compiled": compiled,
    "compiled, update alone": compiled_alone,
    "torch.compile, update alone": torch_compile,
    "sb3": sb3,
}
ONE_STEP = ("compiled, update alone", "torch.compile, update alone")
"""Ways whose call is one gradient step, also of agents whose updates are several."""


def measure(row: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Microseconds of processor time of an update, by way, one figure for each turn.

    If an update has several gradient steps, the figures are of one step.
    """
    updates: dict[str, Callable[[], None]] = {}
    for name in options.ways:
        try:
            updates[name] = WAYS[name](row)
        except (ImportError, KeyError, CompileError) as error:
            print(f"{row}, {name}: left out ({type(error).__name__}: {error})")
    figures: dict[str, list[float]] = {name: [] for name in updates}
    steps = learner(row, None)._steps_of_update
    calls = {name: max(1, options.updates // (1 if name in ONE_STEP else steps)) for name in updates}
    for turn in range(options.turns + 1):
        for name, update in updates.items():
            began = time.process_time()
            for _ in range(calls[name]):
                update()
            if turn:  # the first one warms up
                made = calls[name] * (1 if name in ONE_STEP else steps)
                figures[name].append((time.process_time() - began) / made * 1e6)
    return figures


def profile(row: str, options: argparse.Namespace) -> None:
    """Print where the time of an update by single operations goes: PyTorch's operations, then Python's functions."""
    learn = eager(row)
    for _ in range(200):
        learn()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        for _ in range(options.updates):
            learn()
    print(recorded.key_averages().table(sort_by="self_cpu_time_total", row_limit=30, max_name_column_width=40))
    with cProfile.Profile() as calls:
        for _ in range(options.updates):
            learn()
    pstats.Stats(calls).sort_stats("tottime").print_stats(25)


def main() -> None:
    """Runs the rows."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.updates", description=__doc__)
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--updates", type=int, default=200, help="updates in a turn (%(default)s)")
    parser.add_argument("--profile", action="store_true", help="print where the time of an eager update goes instead")
    parser.add_argument("--out", type=Path, help="file for the figures, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for row in options.rows:
        if options.profile:
            profile(row, options)
            continue
        try:
            found[row] = measure(row, options)
        except UnknownEnvironmentError as error:
            print(f"{row}: left out ({error})")
            continue
        for name, figures in found[row].items():
            low, high = min(figures), max(figures)
            print(f"{row:9} {name:28} {statistics.median(figures):8,.0f} us ({low:,.0f} to {high:,.0f})", flush=True)
    if options.out is not None and not options.profile:
        about = {"date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}", "torch": torch.__version__}
        machine = {"processor": _processor(), "threads": 1, "rows": {row: dict(ROWS[row]) for row in found}}
        options.out.write_text(json.dumps({**about, **machine, "microseconds": found}, indent=1) + "\n")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
