"""`TrainedPolicy`: an agent's policy with trained weights, for programs other than the run that trained it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from reverie import _checks
from reverie._late_types import late
from reverie.agents.agent import Agent
from reverie.agents.core import Policy
from reverie.agents.environments import EnvSpec, make_one
from reverie.agents.observations import (
    ObservationLeaf,
    OwnObservations,
    RowArray,
    inexact,
    look_like_rows,
    pack,
    part_of,
    unknown_category,
)
from reverie.agents.policy_records import PolicyRecord, TrainingRun
from reverie.agents.step_checks import StepChecks

if TYPE_CHECKING:
    from torch.nn import Module
else:
    Module = late("torch.nn", "Module")


@dataclass(frozen=True, eq=False)
class TrainedPolicy:
    """A policy that was loaded: called with observations, it returns actions. Not thread-safe.

    It computes on the CPU, in the precision of its settings.
    """

    agent: Agent
    reference: str
    """The agent's name for `reverie.agents.find`, or `module:agent`."""
    spec: EnvSpec
    """The observations and actions of the environment that it was trained in."""
    config: Any
    """The agent's settings."""
    run: TrainingRun
    policy: Policy
    """The agent's own object, which has its network as `module`."""
    path: Path | None
    """The checkpoint or the file that it was loaded from; None for that of a run's result."""
    rng: np.random.Generator
    """Draws sampled actions."""

    def __repr__(self) -> str:
        """The policy in one line; specs and settings are fields."""
        run, source = self.run, "" if self.path is None else f", from {self.path}"
        return (
            f"<TrainedPolicy of {self.agent.name} on {self.spec.env_id}: {run.env_steps:,} steps,"
            f" {run.updates:,} updates{source}>"
        )

    def __call__(self, observation: Any, *, greedy: bool = True) -> NDArray[Any]:
        """The action for one observation, or actions for a batch of them.

        `observation` is `spec.obs_shape` or `[N, *spec.obs_shape]`, of a dtype that converts to `spec.obs_dtype` within
        its kind (integers also to floats). If the environment, with its wrappers, returns a dict or a tuple, it is
        that nest, of one observation or with a first axis `[N]` in each array. The action is as that environment, with
        its wrappers, takes it: int64 `[]` (`[A]` for vectors of choices), float32 `[A]`, or with a first axis `[N]` for
        a batch; of the dtype of its action space if that is another. With `greedy=False` it is drawn from `rng` as an
        actor draws it at the end of training.

        Raises ValueError for another shape, missing parts, a category that its space does not have, or a number that is
        not finite or that `spec.obs_dtype` cannot hold; and TypeError for another kind of dtype, or if the policy is
        `recurrent`.
        """
        if self.recurrent:
            raise TypeError(
                f"the policy of {self.agent.name} has a state: call action, state = policy.step(observation, state),"
                " which begins as policy.initial_state()"
            )
        observations, single = self._batch(observation)
        if greedy:
            actions = self.policy(observations)
        else:
            actions = _part(self.policy, self.agent, "sample")(observations, self.rng)
        return self._of_space(actions, single)

    def _of_space(self, actions: NDArray[Any], single: bool) -> NDArray[Any]:
        """Actions `[N, ...]`, or the only one of them, in the dtype of the environment's space."""
        found = np.asarray(actions, self.spec.action_dtype or None)
        return np.asarray(found[0]) if single else found

    def make_env(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """The environment that the policy plays in evaluations: with the run's wrappers, time limit and frame stack.

        Observations are arrays `spec.obs_shape`, which this takes, and actions are those that it returns. Categories
        count from the starts of their space: those of a Discrete space with a start are arrays `[]`. `render_mode` is
        one of Gymnasium's. Close it when it is done. Raises `UnknownEnvironmentError` where the environment is not
        installed or registered, and `UnsupportedEnvironmentError` if it cannot be made.
        """
        made = make_one(self.spec.for_evaluation(), render_mode=render_mode)
        return OwnObservations(made, self.spec.leaves) if look_like_rows(self.spec.leaves) else made

    @property
    def recurrent(self) -> bool:
        """Whether it has a state in each episode, and so takes `step` instead of a call."""
        return bool(getattr(self.policy, "recurrent", False))

    def initial_state(self, count: int | None = None) -> NDArray[np.float32]:
        """The state `[S]` at the beginning of an episode, or `[count, S]` of several. Raises TypeError without one."""
        self._require_state()
        states: NDArray[np.float32] = _part(self.policy, self.agent, "initial_state")(1 if count is None else count)
        return states[0] if count is None else states

    def step(
        self, observation: Any, state: NDArray[np.float32], *, greedy: bool = True
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The action of a `recurrent` policy as a call returns it, and the next state.

        `state` is `[S]` for one observation, or `[N, S]` for a batch; the one of an episode's first step is
        `initial_state`. It is not changed. Raises what a call raises, ValueError for a state of another shape, and
        TypeError for a policy without a state.
        """
        self._require_state()
        step = _part(self.policy, self.agent, "step")
        observations, single = self._batch(observation)
        actions, after = step(
            observations, self._states(state, len(observations), single), None if greedy else self.rng
        )
        return self._of_space(actions, single), after[0] if single else after

    def _require_state(self) -> None:
        """Raise TypeError for a policy without a state."""
        if not self.recurrent:
            raise TypeError(f"the policy of {self.agent.name} has no state: call policy(observation)")

    def q_values(self, observation: Any, state: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """The q-values `[num_actions]` of one observation, or `[N, num_actions]` of a batch, without noise, in float32.

        They are estimates of the discounted return of each action, in the unit of the rewards as the run learnt from
        them: the division by a deviation (`normalise_rewards`) and R2D2's rescaling are undone, while rewards beyond
        `spec.reward_bound`, or ten deviations, count as that bound; with `munchausen` a reward includes the term
        of the policy. Those of Rainbow are the means of its distributions. For vectors of choices number `i` is
        that of the combination `np.unravel_index(i, spec.action_sizes)`. A `recurrent` policy needs the `state`, as
        `step` does, which also returns the one after the action.

        Raises what a call raises; TypeError for an agent without q-values in its policy (DQN, Ape-X DQN, Gorila, CQL,
        Rainbow and R2D2 have them) and for a `state` that is missing or not needed.
        """
        have = "those of dqn, apex-dqn, gorila, cql, rainbow and r2d2 have them; `values` is for ppo and impala"
        return self._computed("q_values", "q_values_in_rewards", f"no q-values: {have}", observation, state)

    def values(self, observation: Any, state: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """The value `[]` of one observation, or `[N]` of a batch, in float32: the estimate of the policy's return.

        In the unit of `q_values`. PPO and IMPALA have values; the critics of other agents are in a run's checkpoints.
        Raises what `q_values` raises.
        """
        have = "those of ppo and impala have them; `q_values` is for agents of q-values"
        return self._computed("values", "values_in_rewards", f"no values: {have}", observation, state)

    def probabilities(self, observation: Any, state: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """The probabilities `[num_actions]` of the actions for one observation, or `[N, num_actions]`, in float32.

        They are those from which PPO and IMPALA draw discrete actions. For vectors of choices they are those of each
        part by itself, one after the other: `[sum(spec.action_sizes)]`. Raises what `q_values` raises, and TypeError
        for continuous actions.
        """
        have = "those of ppo and impala have them, for discrete actions"
        method = "probabilities" if self.spec.num_actions is not None else ""
        return self._computed("probabilities", method, f"no probabilities: {have}", observation, state)

    def _computed(
        self, kind: str, method: str, missing: str, observation: Any, state: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Results of a method of the agent's policy for observations `[N, ...]`, and for states if it has any."""
        compute = getattr(self.policy, method, None)
        if compute is None:
            raise TypeError(f"the policy of {self.agent.name} has {missing}")
        if self.recurrent and state is None:
            raise TypeError(
                f"the policy of {self.agent.name} has a state: call policy.{kind}(observation, state), at first with"
                " policy.initial_state()"
            )
        if not self.recurrent and state is not None:
            raise TypeError(f"the policy of {self.agent.name} has no state: call policy.{kind}(observation)")
        observations, single = self._batch(observation)
        states = None if state is None else self._states(state, len(observations), single)
        found: NDArray[np.float32] = compute(observations, states)
        return np.asarray(found[0]) if single else found

    def _states(self, state: NDArray[np.float32], count: int, single: bool) -> NDArray[np.float32]:
        """The states `[N, S]` as the network takes them. Raises ValueError for another shape."""
        given = np.asarray(state)
        states = np.require(given[None] if single else given, np.float32, ["C", "W"])
        wanted = self.policy.initial_state(count).shape  # type: ignore[attr-defined]
        if states.shape != wanted:
            raise ValueError(f"state has shape {given.shape}, and must be {wanted[1:] if single else wanted}")
        return states

    @property
    def record(self) -> PolicyRecord:
        """The record that its file has."""
        return PolicyRecord(self.agent, self.reference, self.spec, self.config, self.run)

    @property
    def module(self) -> Module:
        """The network, whose named parameters are the weights. Raises TypeError if the agent's policy has none."""
        module: Module = _part(self.policy, self.agent, "module")
        return module

    def save(self, path: Path | str) -> Path:
        """Write weights, architecture and specs as one `.safetensors` file, which `reverie.load_policy` loads.

        The file replaces an older one when it is complete. Returns its path. Raises `PolicyError` for a path without
        that suffix, TypeError if the agent's policy has no `module`, and OSError if the file cannot be written.
        """
        from reverie.agents import policy_files  # needs safetensors

        return policy_files.write(self.record, self.module, _checks.path("path", path))

    def _batch(self, observation: Any) -> tuple[NDArray[Any], bool]:
        """The observations `[N, ...]` as the network takes them, and whether one was given alone."""
        if self.spec.leaves and not _is_row(observation, self.spec):
            observation = self._rows(observation)
        elif len(self.spec.leaves) == 1:
            require_categories(replace(self.spec.leaves[0], starts=()), observation)  # those of rows count from 0
        given, wanted, shape = np.asarray(observation), np.dtype(self.spec.obs_dtype), self.spec.obs_shape
        if not np.can_cast(given.dtype, wanted, "same_kind"):
            raise TypeError(f"observations are {given.dtype}, and this policy takes {wanted}: convert them first")
        single = given.shape == shape
        if not single and given.shape[1:] != shape:
            raise ValueError(
                f"observations have shape {given.shape}, and this policy takes {shape}, or a batch (N, "
                f"{', '.join(map(str, shape))})"
            )
        batch = given[None] if single else given
        if batch.dtype != wanted:
            if (number := inexact(wanted, batch)) is not None:
                raise ValueError(
                    f"the observation has the number {number!s}, which {wanted} of this policy cannot hold"
                )
            with np.errstate(over="ignore"):  # what becomes infinite is refused below
                batch = batch.astype(wanted)
        # PyTorch shares the array's memory, and warns about memory that is read-only.
        batch = np.require(batch, requirements=["C", "W"])
        if (found := self._step_checks.not_finite(batch)) is not None:
            which, name, text = found
            whose = name or ("the observation" if single else f"observation {which}")
            raise ValueError(f"{whose} has {text}, and a policy takes finite numbers of float32")
        return batch, single

    @cached_property
    def _step_checks(self) -> StepChecks:
        return StepChecks(self.spec)

    def _rows(self, observation: Any) -> NDArray[Any]:
        """Rows of the leaves of an observation, or of a batch of them, as the environment returns it."""
        stack = () if self.spec.frame_stack is None else (self.spec.frame_stack,)
        parts = []
        for leaf in self.spec.leaves:
            try:
                part = np.asarray(part_of(observation, leaf))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                if isinstance(observation, list | tuple) and leaf.path and not leaf.path[0].isdecimal():
                    kind = f"{type(observation).__name__} of {len(observation)}"
                    raise ValueError(
                        f"the observation is a {kind}, and this policy reads a dict with {leaf.path[0]}: a batch is one"
                        " dict whose arrays have a first axis"
                    ) from error
                raise ValueError(f"the observation lacks {leaf.name}, which this policy reads") from error
            if not np.can_cast(part.dtype, leaf.dtype, "same_kind") and part.dtype.kind not in "iu":
                raise TypeError(f"{leaf.name} is {part.dtype}, and this policy takes {leaf.dtype}: convert it first")
            shape = (*stack, *leaf.shape)
            if part.shape != shape and part.shape[1:] != shape:
                raise ValueError(f"{leaf.name} has shape {part.shape}, and this policy takes {shape}, or a batch of it")
            require_categories(leaf, part)
            parts.append(part)
        leads = {part.shape[: part.ndim - len(leaf.shape)] for part, leaf in zip(parts, self.spec.leaves, strict=True)}
        if len(leads) > 1:
            raise ValueError("the parts of the observation have batches of different sizes, and must have one")
        return pack(self.spec.leaves, parts)


def read(path: Path, agent: Agent | str | None, seed: int) -> TrainedPolicy:
    """Load a policy's file with `agent`, by default the one that it names.

    Raises `PolicyError`, which names the field, the setting or the weight that is missing or wrong.
    """
    from reverie.agents import policy_files  # needs safetensors

    record, tensors = policy_files.read(path, agent)
    found, rng = record.agent, np.random.default_rng(seed)
    own = found.make_policy(record.spec, record.config)
    policy = TrainedPolicy(found, record.reference, record.spec, record.config, record.run, own, path, rng)
    policy_files.load_named(path, policy.module, tensors)
    return policy


def require_categories(leaf: ObservationLeaf, part: NDArray[Any]) -> None:
    """Raise ValueError for a category that the environment's space does not have."""
    if (found := unknown_category(leaf, np.asarray(part))) is not None:
        number, first, last = found
        raise ValueError(f"{leaf.name} has the category {number}, and this policy takes {first} to {last}")


def _is_row(observation: Any, spec: EnvSpec) -> bool:
    """Whether an observation is an array as tables and networks have it, and not as the environment returns it."""
    if look_like_rows(spec.leaves):
        return isinstance(observation, RowArray)
    if not isinstance(observation, np.ndarray) or observation.dtype != spec.obs_dtype:
        return False
    return spec.obs_shape in (observation.shape, observation.shape[1:])


def _part(policy: Policy, agent: Agent, name: str) -> Any:
    """An attribute of an agent's policy. Raises TypeError, which names it, for a policy of another package without."""
    if not hasattr(policy, name):
        raise TypeError(f"the policy of agent {agent.name} has no {name}; reverie.agents.core.Policy describes it")
    return getattr(policy, name)
