"""The updates of a run that are compiled, and from which on."""

from __future__ import annotations

from typing import Any

from reverie.agents.agent import Agent
from reverie.agents.core import CompilePlan, RunSettings
from reverie.agents.environments import EnvSpec
from reverie.agents.inputs import is_mostly_convolutions

BEGIN = 2_500
"""The updates of a run before it compiles: shorter runs would not gain from it."""
USE_FROM = 5_000
"""The first compiled update of a run in one process, whether the compiler has ended earlier or another run has compiled
the same: so the same seed gives the same run. The updates in between take longer than the compiler."""
BEGIN_ON_UNROLLS, USE_FROM_ON_UNROLLS = 10_000, 30_000
"""`BEGIN` and `USE_FROM` of agents that learn from unrolls or sequences. PPO makes its gradient steps one after the
other, with few steps of environments in between: 20,000 take as long as the compiler, and save as much processor time
as it takes. A graph of sequences takes the compiler twice as long as others."""

RECORD_FROM = 20
"""The first update that is recorded on a GPU. Those before choose their kernels, which takes a few updates."""


def compile_plan(agent: Agent, config: Any, env: EnvSpec, run: RunSettings, runner: str) -> CompilePlan | None:
    """The plan of updates that a run compiles; None if it compiles none. Raises ValueError if it must and cannot."""
    if run.compile == "off":
        return None
    reason = "" if agent.uncompiled is None else agent.uncompiled(config)
    if reason:
        reason = f"{agent.name} is not compiled {reason}"
    elif not agent.compiles:
        reason = f"the updates of {agent.name} are not made to be compiled"
    elif run.device != "cpu" and agent.needs(config).observations > 2:
        reason = f"the updates of {agent.name} are not made to be recorded on a GPU"
    elif run.device != "cpu":
        required = run.compile == "on"
        return CompilePlan(begin=RECORD_FROM, use_from=RECORD_FROM, required=required)
    elif run.compile == "on" and runner != "ray":  # on Ray it is the learner's node that counts
        from reverie.agents.compiling import missing_compiler

        reason = missing_compiler()
    if run.compile == "on":
        if reason:
            raise ValueError(f"compile is 'on', and {reason}: leave it out")
        return CompilePlan(begin=0, use_from=1, required=True)
    needs = agent.needs(config)
    on_unrolls = needs.publish_every_update or needs.observations > 2
    # Convolutions take as long compiled (docs/measurements/pong.md), and unrolls of grids were not measured.
    if reason or is_mostly_convolutions(env) or (on_unrolls and env.has_images):
        return None
    begin, use_from = (BEGIN_ON_UNROLLS, USE_FROM_ON_UNROLLS) if on_unrolls else (BEGIN, USE_FROM)
    return CompilePlan(begin=begin, use_from=use_from if runner == "local" else None, required=False)
