"""Rows of training runs: with presets, the same with separate roles, defaults on other tasks, ablations of Ape-X."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reverie.agents import BUILT_IN, find

from .row import (
    ABLATIONS,
    APART,
    CONTROL,
    DEFAULTS,
    LONG,
    NO_VELOCITIES,
    OFFLINE,
    OFFLINE_SETTINGS,
    OFFLINE_STEPS,
    PARTS,
    REPLAY,
    TARGETS,
    Row,
)


def _targets() -> list[Row]:
    cartpole = [("apex-dqn", 100_000), ("dqn", 100_000), ("ppo", 100_000), ("gorila", 150_000), ("impala", 300_000)]
    cartpole += [("rainbow", 100_000), ("r2d2", 150_000)]
    pendulum = ["apex-dpg", "ddpg", "td3", "sac", "d4pg"]
    remembered = [("r2d2", 150_000), ("ppo", 150_000), ("impala", 300_000)]
    bit_flips = "reverie.agents.goal_tasks:ReverieBitFlips-v0"
    # Flipping a bit again undoes it, and with items of several steps it took longer (docs/guides/goals.md).
    rare = ("evaluate_every=25_000",)  # an evaluation is 10 episodes of up to 1,600 steps
    flips = ("n_step=1", "random_hold=1.0", "evaluate_every=1_000")
    return [
        *(Row(f"cartpole-{agent}", agent, "CartPole-v1", 475.0, by) for agent, by in cartpole),
        *(Row(f"pendulum-{agent}", agent, "Pendulum-v1", -170.0, 50_000) for agent in pendulum),
        Row("pendulum-ppo", "ppo", "Pendulum-v1", -170.0, 100_000),
        Row("acrobot-apex-dqn", "apex-dqn", "Acrobot-v1", -90.0, 150_000),
        # Above Gymnasium's threshold of 200: what other libraries' DQN with priorities has at the end of as many steps.
        Row("lunarlander-apex-dqn", "apex-dqn", "LunarLander-v3", 250.0, 300_000, until_max_steps=True),
        Row("lunarlander-ppo", "ppo", "LunarLander-v3", 200.0, 500_000),
        Row("mountaincarcontinuous-apex-dpg", "apex-dpg", "MountainCarContinuous-v0", 90.0, 300_000),
        # As many updates with hindsight as without.
        Row("bitflips-dqn-her", "dqn", bit_flips, -6.5, 20_000, ("her=future", "samples_per_insert=6.4", *flips)),
        Row("bitflips-dqn", "dqn", bit_flips, -6.5, 20_000, flips),
        *(
            Row(f"cartpole-no-velocities-{agent}", agent, "CartPole-v1", 475.0, by, config=NO_VELOCITIES)
            for agent, by in remembered
        ),
        Row("pendulum-no-velocities-ppo", "ppo", "Pendulum-v1", -220.0, 150_000, config=NO_VELOCITIES),
        # Below Gymnasium's threshold of 300: others' SAC has 297.7.
        *(
            Row(f"bipedalwalker-{agent}", agent, "BipedalWalker-v3", 290.0, 500_000, rare, num_seeds=3)
            for agent in ("sac", "td3")
        ),
        Row("pong-apex-dqn", "apex-dqn", "ALE/Pong-v5", 19.0, 3_000_000),
    ]


GPU = (
    *("device=cuda", "actor_device=cpu", "num_actors=9", "envs_per_actor=16", "weights_period=20", "prefetch=3"),
    *("anneal_updates=170_000", "anneal_to=0.1", "evaluate_every=100_000", "checkpoint_every=1_000_000"),
)
"""Settings for Pong with the learner on a GPU, and 16 cores; the rate falls until 2.7 million steps."""


def _apart() -> list[Row]:
    """Presets as they are: the quicker role decides what is learnt from what, and batches are drawn ahead."""
    targets = {row.name: row for row in _targets()}

    def apart(name: str, target: str, **changed: Any) -> Row:
        return replace(targets[target], **{"name": name, "runner": "process", "group": APART, **changed})

    bundled = ("bundled=true", "learning_starts=500", "capacity=25_000")
    return [
        apart("apart-apex-dqn", "cartpole-apex-dqn"),
        apart("apart-apex-dqn-shards", "cartpole-apex-dqn", num_shards=2),
        apart("apart-apex-dqn-ray", "cartpole-apex-dqn", runner="ray"),
        apart("apart-gorila", "cartpole-gorila"),
        apart("apart-gorila-bundled", "cartpole-gorila", settings=bundled),
        apart("apart-impala", "cartpole-impala"),
        apart("apart-apex-dpg", "pendulum-apex-dpg"),
        apart("apart-r2d2", "cartpole-no-velocities-r2d2"),
        apart("apart-r2d2-ray", "cartpole-no-velocities-r2d2", runner="ray"),
        apart("apart-pong-apex-dqn", "pong-apex-dqn", settings=GPU),
    ]


BASELINE = "actors-2"
"""The row that ablations are compared with: the preset as it is."""
UPDATES = 5_000
"""Updates of every ablation: the learner does the same work with any number of actors."""
BATCH, ENVIRONMENTS = 128, 4


def _ablation(name: str, steps_per_update: int, *settings: str) -> Row:
    """A row on CartPole: the preset except for `settings`, and an update for every `steps_per_update` steps."""
    return Row(
        name,
        "apex-dqn",
        "CartPole-v1",
        475.0,
        1_000 + UPDATES * steps_per_update,
        (f"samples_per_insert={BATCH / steps_per_update}", f"evaluate_every={250 * steps_per_update}", *settings),
        group=ABLATIONS,
        until_max_steps=True,
        first=1_000,
        every=250 * steps_per_update,
    )


def _ablations() -> list[Row]:
    return [
        # Horgan et al. 2018, figure 5: more actors with the same learner bring more data for each of its updates.
        # Two actors are the preset, with the actors' own priorities and n = 3: what the rows below are compared with.
        *(_ablation(f"actors-{n}", 2 * n, f"num_actors={n}", f"envs_per_actor={ENVIRONMENTS}") for n in (1, 2, 4, 8)),
        _ablation("priorities-max", 4, "first_priority=max"),
        _ablation("priorities-none", 4, "priority_exponent=0.0", "importance_exponent=0.0"),
        _ablation("n-step-1", 4, "n_step=1"),
        _ablation("precision-bfloat16", 4, "precision=bfloat16"),
        _ablation("munchausen-0.9", 4, "munchausen=0.9"),
    ]


DEFAULT_SEEDS = 3
"""The number of seeds of each agent on each task without a preset."""
DISCRETE = {"Acrobot-v1": (-100.0, 100_000), "MountainCar-v0": (-110.0, 200_000), "LunarLander-v3": (200.0, 200_000)}
"""Tasks with discrete actions: the threshold of Gymnasium, and the steps within which it is to be reached."""
CONTINUOUS = {"MountainCarContinuous-v0": (90.0, 50_000), "LunarLanderContinuous-v3": (200.0, 200_000)}
WITHOUT_PRESET = {
    "dqn": DISCRETE,
    "apex-dqn": DISCRETE,
    "rainbow": DISCRETE,
    "r2d2": DISCRETE,
    "gorila": DISCRETE,
    "impala": DISCRETE,
    "ppo": DISCRETE | CONTINUOUS,
    "sac": CONTINUOUS,
    "td3": CONTINUOUS,
    "ddpg": CONTINUOUS,
    "d4pg": CONTINUOUS,
    "apex-dpg": CONTINUOUS,
}


def _defaults() -> list[Row]:
    """Each agent on the tasks of its kind for which it has no preset, evaluated every 10,000 steps."""
    evaluated = ("evaluate_every=10_000",)
    return [
        Row(
            f"defaults-{env_id.partition('-')[0].lower()}-{agent}",
            agent,
            env_id,
            reach,
            by,
            evaluated,
            group=DEFAULTS,
            num_seeds=DEFAULT_SEEDS,
        )
        for agent, tasks in WITHOUT_PRESET.items()
        for env_id, (reach, by) in tasks.items()
        if agent in BUILT_IN and not (find(agent).presets / f"{env_id}.toml").exists()
    ]


GAMES = {"breakout": 10.0, "asterix": 17.0, "space_invaders": 44.0}
"""Returns of Young & Tian's DQN after 5 million steps, read off their figure (+-1), 30 seeds."""
ONLINE = {"breakout": 4.0, "asterix": 5.5, "space_invaders": 13.0}
"""The same without replay."""
REPLAY_STEPS = 1_000_000
REPLAYS = {
    "none": ("dqn", ("capacity=32", "learning_starts=32")),
    "uniform": ("dqn", ()),
    "three-steps": ("dqn", ("n_step=3",)),
    "priorities": ("rainbow", ('head="scalar"', "dueling=false", "double=false", "noisy=false", "n_step=1")),
    "apex-dqn": ("apex-dqn", ()),
    "rainbow": ("rainbow", ()),
    "sequences": ("r2d2", ()),
}
"""Ways to use experience again, by the row's name: the agent, and its settings where they are not the preset's."""


def _replays() -> list[Row]:
    """MinAtar's games with all six actions and sticky ones, to the same number of steps."""
    return [
        Row(
            f"replay-{game}-{name}",
            agent,
            f"MinAtar/{game.title().replace('_', '')}-v0",
            reach,
            REPLAY_STEPS,
            settings,
            group=REPLAY,
            until_max_steps=True,
            every=50_000,
        )
        for game, reach in GAMES.items()
        for name, (agent, settings) in REPLAYS.items()
    ]


LONG_STEPS = 5_000_000
LONG_GAME = "breakout"
LONG_WAYS = ("uniform", "rainbow")
"""Rows of `REPLAYS`: DQN, and the one that scores highest in every game after `REPLAY_STEPS`."""


def _longs() -> list[Row]:
    """Rows with as many steps as the games' authors trained, one seed each."""
    replays = {row.name: row for row in _replays()}
    return [
        replace(
            replays[f"{REPLAY}-{LONG_GAME}-{way}"],
            name=f"{LONG}-{LONG_GAME}-{way}",
            by=LONG_STEPS,
            group=LONG,
            num_seeds=1,
        )
        for way in LONG_WAYS
    ]


PARTS_STEPS = 250_000
PARTS_SEEDS = 3
RAINBOWS = {
    "all": (),
    "quantile": ('head="quantile"',),
    "scalar": ('head="scalar"',),
    "no-noise": ("noisy=false",),
    "spectral": ("spectral_norm=true",),
    "one-stream": ("dueling=false",),
    "uniform": ("prioritized=false",),
    "one-step": ("n_step=1",),
    "no-double": ("double=false",),
    "quantile-no-double": ('head="quantile"', "double=false"),
    "munchausen": ('head="quantile"', "double=false", "munchausen=0.9"),
}
"""Rainbow as it is, and with one of its parts exchanged, by the row's name. Munchausen needs another head than the
preset's, and no double Q-learning: the row above it has these alone."""


def _parts() -> list[Row]:
    """Parts of Rainbow, on MinAtar's Breakout, whose preset has all but spectral normalisation."""
    return [
        Row(
            f"parts-{name}",
            "rainbow",
            "MinAtar/Breakout-v0",
            GAMES["breakout"],
            PARTS_STEPS,
            ("evaluate_every=25_000", *settings),
            group=PARTS,
            until_max_steps=True,
            every=25_000,
            num_seeds=PARTS_SEEDS,
        )
        for name, settings in RAINBOWS.items()
    ]


CONTROL_SEEDS = 3
CONTROL_STEPS = 300_000
PPO_STEPS = 1_000_000
WALKERS = {"Hopper-v5": 3800.0, "HalfCheetah-v5": 4800.0}
"""Environments of MuJoCo, and Gymnasium's thresholds."""
DROQ_STEPS = 100_000
"""The length of a run with four updates for each step."""
FIRST_STEPS = range(20_000, 100_001, 20_000)
"""Points that the curves of all walkers' rows have."""


def _control() -> list[Row]:
    """MuJoCo's walkers, next to Stable-Baselines3's SAC with the zoo's settings."""
    same = {"group": CONTROL, "until_max_steps": True, "num_seeds": CONTROL_SEEDS}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "sac": ("sac", {}),
        "sac-droq": ("sac", {"config": "droq", "by": DROQ_STEPS}),
        "td3": ("td3", {}),
        "d4pg": ("d4pg", {}),
        "ppo": ("ppo", {"by": PPO_STEPS, "every": 20_000}),
        "sb3-sac": ("sac", {"library": "sb3"}),
    }
    return [
        Row(f"{CONTROL}-{walker}-{kind}", agent, env_id, reach, **{"by": CONTROL_STEPS, "every": 10_000, **same, **own})
        for env_id, reach in WALKERS.items()
        for walker in [env_id.partition("-")[0].lower()]
        for kind, (agent, own) in kinds.items()
    ]


OFFLINE_UPDATES = {"iql": 10_000, "cql-sac": 5_000, "cql": 4_000}


def _offline() -> list[Row]:
    """Agents that learn from data sets, next to what they would do without what the paper adds."""
    kinds = (
        ("pendulum-noisy-iql", "iql", ()),
        ("pendulum-noisy-imitation", "iql", ("advantage_scale=0",)),
        ("pendulum-noisy-cql-sac", "cql-sac", ()),
        ("pendulum-narrow-iql", "iql", ()),
        ("pendulum-narrow-cql-sac", "cql-sac", ()),
        ("pendulum-narrow-sac", "cql-sac", ("conservative_weight=0",)),
        ("cartpole-narrow-cql", "cql", ()),
        ("cartpole-narrow-dqn", "cql", ("conservative_weight=0",)),
    )
    tasks = {"pendulum": ("Pendulum-v1", -170.0), "cartpole": ("CartPole-v1", 475.0)}
    return [
        Row(
            f"{OFFLINE}-{name}",
            agent,
            tasks[task][0],
            tasks[task][1],
            OFFLINE_STEPS + OFFLINE_UPDATES[agent],
            (*settings, *OFFLINE_SETTINGS),
            group=OFFLINE,
            until_max_steps=True,
            data=f"{task}-{kind}",
        )
        for name, agent, settings in kinds
        for task, kind, _ in [name.split("-", 2)]
    ]


_ALL = (
    *_targets(),
    *_apart(),
    *_defaults(),
    *_replays(),
    *_longs(),
    *_ablations(),
    *_parts(),
    *_control(),
    *_offline(),
)
ROWS = {row.name: row for row in _ALL if row.agent in BUILT_IN}
DEFAULT = tuple(
    name
    for name, row in ROWS.items()
    if row.env_id not in ("ALE/Pong-v5", "BipedalWalker-v3") and row.group in (TARGETS, APART, ABLATIONS, OFFLINE)
)
"""Pong takes a GPU or a day, MinAtar and walkers hours (and most of them a package of their own), and the defaults have
fewer seeds: they are asked for by name."""
