"""The learners: a batch, a gradient to the parameter server, and the newest parameters back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from reverie.agents.core import Stopwatch, Weights
from reverie.agents.draws import TableDraws
from reverie.agents.environments import EnvSpec
from reverie.agents.flat import FlatNetwork
from reverie.agents.gorila.config import GorilaConfig, needs
from reverie.agents.gorila.loss import Gradient, dqn_gradient
from reverie.agents.gorila.networks import make_network
from reverie.agents.gorila.parameters import LocalParameterServer, LocalShard, ParameterServer, make_shards
from reverie.agents.gorila.states import server_state, shard_states
from reverie.agents.learning import NetworkLearner
from reverie.agents.named_parameters import Named
from reverie.agents.outcomes import age
from reverie.agents.replay import TABLE


def make_parameter_server(spec: EnvSpec, config: GorilaConfig, *, seed: int) -> LocalParameterServer:
    """A parameter server in this process, with the initial weights of DQN for `seed`."""
    return LocalParameterServer(make_shards(make_network(spec, config, seed=seed, trainable=False).numpy(), config))


def make_parameter_shard(spec: EnvSpec, config: GorilaConfig, *, seed: int, index: int) -> LocalShard:
    """Shard `index` of the parameter server that `make_parameter_server` makes from the same seed."""
    return make_shards(make_network(spec, config, seed=seed, trainable=False).numpy(), config)[index]


class GorilaWorker:
    """One of the paper's learners: copies of both networks, and their versions.

    It pulls after it has pushed, not before it computes: its copy becomes stale while the others push, both in turns
    and in parallel. The target is copied at the first pull at or after a multiple of `target_period` server versions.
    """

    def __init__(self, spec: EnvSpec, config: GorilaConfig, server: ParameterServer) -> None:
        self._config, self.server = config, server
        self.online = make_network(spec, config, seed=0, trainable=True)
        self.target = make_network(spec, config, seed=0, trainable=False)
        self._periods = -1
        self.behind = True
        """Whether it must pull before it computes, because the server may have been restarted."""
        self.pull()

    def pull(self) -> int:
        """Pull the newest parameters; their version. A server that went back to an older state counts as new."""
        pulled = self.server.pull()
        self.online.load(pulled.flat)
        self.version, self._versions, self.behind = pulled.version, pulled.versions, False
        periods = pulled.version // self._config.target_period
        if periods != self._periods:
            self._periods = periods
            self.target.copy_from(self.online)
        return self.version

    def gradient(self, data: dict[str, Tensor]) -> Gradient:
        """The gradient of a batch at its present parameters."""
        return dqn_gradient(self.online, self.target, data, self._config)

    def push(self, gradient: Gradient) -> bool:
        """Send a gradient; False if it was dropped. If this raises, it is unknown which shards applied it."""
        self.behind = True
        return self.server.push(gradient.flat, gradient.norm, self._versions)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next gradient depends on, except the networks."""
        return {"version": self.version, "versions": self._versions, "periods": self._periods}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self.version, self._versions, self._periods = state["version"], tuple(state["versions"]), state["periods"]


class Learner(NetworkLearner):
    """All workers, alternating, with a parameter server of their own, or one worker of a remote `server`.

    `version` is the server's at the last pull: a dropped gradient makes no new version.
    """

    def __init__(
        self,
        spec: EnvSpec,
        config: GorilaConfig,
        client: Any,
        *,
        seed: int,
        watch: Stopwatch,
        server: ParameterServer | None = None,
        index: int | None = None,
    ) -> None:
        super().__init__(client, watch=watch)
        self._config, self._needs = config, needs(config)
        self._own_server: LocalParameterServer | None = None
        if server is None:
            server = self._own_server = make_parameter_server(spec, config, seed=seed)
        self._server: ParameterServer = server
        self._indices = range(config.num_learners) if index is None else (index,)
        if not self._needs.bundled:
            self._draws = TableDraws(TABLE, config.batch_size)
        self._draws_of = {
            i: self._draws or TableDraws(self._needs.table_of(i), config.batch_size) for i in self._indices
        }
        self._workers = {i: GorilaWorker(spec, config, self._server) for i in self._indices}
        for i, worker in self._workers.items():
            self._networks |= {f"online-{i}": worker.online, f"target-{i}": worker.target}
        self._turn = 0
        self._counts = {"gradients": 0, "gradients_dropped": 0}

    def follow(self, server: ParameterServer) -> None:
        """Use a restarted server, which may have an older version: every worker pulls before it computes again."""
        self._server = server
        for worker in self._workers.values():
            worker.server, worker.behind = server, True

    def learn(self) -> None:
        """Run the turn of one worker. Raises `DeadlineExceededError` at once if its table cannot give a batch now.

        Raises the connection's error if a remote server cannot be reached; only the batch is lost then.
        """
        index = self._next()
        worker = self._workers[index]
        if worker.behind:
            with self._watch("update"):
                self.version = worker.pull()
        with self._watch("sample"):
            batch = self._draws_of[index].next(self._client, self._device)
        with self._watch("learn"):
            gradient = worker.gradient(batch.data)
        self._check({"loss": gradient.loss, "gradient_norm": gradient.norm})
        old = age(self.version, batch)
        with self._watch("update"):
            before = worker.version
            taken = worker.push(gradient)
            self.version = worker.pull()
        self._counts["gradients"] += 1
        self._counts["gradients_dropped"] += not taken
        stale = self.version - taken - before
        figures = {"staleness": stale, "loss": gradient.loss, "gradient_norm": gradient.norm}
        self._last = figures if old is None else {"age_in_updates": old, **figures}

    def _next(self) -> int:
        """The worker whose turn it is: each in turn, or, if bundled, one whose table can give a batch."""
        order = [*self._indices[self._turn :], *self._indices[: self._turn]]
        index: int = order[0]
        if self._needs.bundled and len(order) > 1:
            size = self._config.batch_size
            index = next((i for i in order if self._client.can_sample(self._needs.table_of(i), size)), order[0])
        self._turn = (self._indices.index(index) + 1) % len(order)
        return index

    def latest(self, newer_than: int) -> Weights | None:
        """The server's newest weights, or None if there are none newer than version `newer_than`."""
        return self._server.latest(newer_than)

    def _acting(self) -> NDArray[np.float32]:
        return self._server.pull().flat

    def _rates(self, *, initial: bool = False) -> dict[str, float]:
        """The server's rate of the update that made this version."""
        rate = self._config.learning_rate if initial else self._config.rate(max(0, self.version - 1))
        return {"learning_rate": rate}

    def warm_start(self, acting: NDArray[np.float32], networks: Mapping[str, Named] | None) -> None:
        """Begin with the weights `acting` at the server, and in both networks of each worker.

        Raises TypeError with a remote parameter server, ValueError for another number of weights.
        """
        if self._own_server is None:
            raise TypeError("a learner of a remote parameter server takes the weights of its shards")
        size = next(iter(self._networks.values())).flat.numel()
        if acting.shape != (size,):
            raise ValueError(f"network online has {acting.size} parameters, and this learner's {size}")
        self._own_server.replace(acting)
        for network in self._networks.values():
            network.load(acting)

    def state_dict(self) -> dict[str, Any]:
        """The state of all workers, and of the parameter server if it is this learner's own."""
        workers = [worker.state_dict() for worker in self._workers.values()]
        server = None if self._own_server is None else server_state(self._layout, self._own_server.shard_states())
        return {**super().state_dict(), "workers": workers, "turn": self._turn, "server": server}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`, which is copied."""
        super().load_state_dict(state)
        self._turn = state["turn"]
        for worker, one in zip(self._workers.values(), state["workers"], strict=True):
            worker.load_state_dict(one)
            worker.behind = self._own_server is None
        if self._own_server is not None:
            self._own_server.load_shard_states(shard_states(self._layout, state["server"]))

    @property
    def _layout(self) -> FlatNetwork[Any]:
        """A network with the names and places of the parameters."""
        return next(iter(self._workers.values())).online
