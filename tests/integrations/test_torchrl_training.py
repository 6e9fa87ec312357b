"""Losses and collectors of TorchRL on Reverie's buffers: short trainings."""

from __future__ import annotations

import pytest

pytest.importorskip("torchrl", reason="the extra torchrl is not installed")

import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torchrl.collectors import Collector, MultiSyncCollector
from torchrl.data import TensorDictReplayBuffer
from torchrl.envs import GymEnv
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, QValueModule, TanhNormal, ValueOperator
from torchrl.objectives import DQNLoss, SACLoss, SoftUpdate

import reverie
from reverie.integrations.torchrl import PrioritizedReplayBuffer, ReplayBuffer


def cartpole():
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


def dqn(env):
    """A policy and its loss."""
    network = TensorDictModule(MLP(4, 2, num_cells=[8]), in_keys=["observation"], out_keys=["action_value"])
    policy = TensorDictSequential(network, QValueModule(spec=env.action_spec))
    loss = DQNLoss(policy, action_space="categorical", delay_value=True, reduction="none")
    loss.make_value_estimator(gamma=0.99)
    return policy, loss


def sac(env):
    """A policy and its loss."""
    actor = TensorDictModule(
        torch.nn.Sequential(MLP(3, 2, num_cells=[8]), NormalParamExtractor()), ["observation"], ["loc", "scale"]
    )
    policy = ProbabilisticActor(
        actor, in_keys=["loc", "scale"], spec=env.action_spec, distribution_class=TanhNormal, return_log_prob=True
    )
    loss = SACLoss(policy, ValueOperator(MLP(4, 1, num_cells=[8]), ["observation", "action"]), reduction="none")
    loss.make_value_estimator(gamma=0.99)
    return policy, loss


def train(make_env, make, buffer, frames=60):
    """Trains on what a collector returns; the parameters."""
    torch.manual_seed(3)
    env = make_env()
    env.set_seed(3)
    policy, loss_of = make(env)
    before = torch.cat([value.flatten() for value in policy.parameters()]).clone()
    optimizer, target = torch.optim.Adam(loss_of.parameters(), 1e-2), SoftUpdate(loss_of, tau=0.1)
    collector = Collector(
        env,
        policy,
        frames_per_batch=20,
        total_frames=frames,
        replay_buffer=buffer,
        auto_register_policy_transforms=True,
    )
    for _ in collector:
        for _ in range(3):
            sample = buffer.sample()
            losses = loss_of(sample)
            parts = [value for name, value in losses.items() if name.startswith("loss")]
            loss = sum((part * sample.get("priority_weight", torch.ones(()))).mean() for part in parts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            target.step()
            buffer.update_tensordict_priority(sample)
    collector.shutdown()
    after = torch.cat([value.flatten() for value in policy.parameters()]).detach()
    assert not torch.equal(before, after)
    return after


@pytest.mark.long
@pytest.mark.parametrize(
    ("make_env", "make"), [(cartpole, dqn), (lambda: GymEnv("Pendulum-v1"), sac)], ids=["dqn", "sac"]
)
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_a_loss_trains_on_what_a_collector_adds_and_repeats_with_its_seed(kind, make_env, make):
    def run():
        buffer = kind(100, batch_size=16, seed=5)
        parameters = train(make_env, make, buffer)
        assert (len(buffer), buffer.write_count) == (60, 60)
        found = buffer.client.query("replay")
        assert (found.version > 0).any() == (kind is PrioritizedReplayBuffer)
        return parameters

    assert torch.equal(run(), run())


def test_a_server_holds_what_a_collector_adds():
    table = reverie.Table("replay", reverie.selectors.Prioritized(0.6), reverie.selectors.Fifo(), 40)
    with reverie.Server([table]) as server:
        buffer = PrioritizedReplayBuffer(server=reverie.Client(server.address, transport="grpc"), batch_size=16)
        train(cartpole, dqn, buffer)
        assert (len(buffer), buffer.write_count) == (40, 60)
        assert isinstance(buffer, TensorDictReplayBuffer)
        buffer.client.close()


@pytest.mark.long
def test_a_collector_in_another_process_fills_a_server():
    table = reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 1000)
    with reverie.Server([table]) as server:
        buffer = ReplayBuffer(server=server.address, batch_size=16)
        torch.manual_seed(1)
        policy, _ = dqn(cartpole())
        collector = MultiSyncCollector(
            # One process: each imports TorchRL for seconds. A lambda is pickled by value: it cannot import this module.
            [lambda: GymEnv("CartPole-v1", categorical_action_encoding=True)],
            policy,
            frames_per_batch=40,
            total_frames=120,
            replay_buffer=buffer,
            auto_register_policy_transforms=True,
        )
        for _ in collector:
            assert buffer.sample().shape == (16,)
        collector.shutdown()
        assert len(buffer) == buffer.write_count == 120
