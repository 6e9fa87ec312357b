"""The buffers for TorchRL, with TorchRL's own as the model."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("torchrl", reason="the extra torchrl is not installed")

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer
from torchrl.data.replay_buffers.scheduler import LinearScheduler
from torchrl.envs import Compose, DoubleToFloat, RewardScaling

import reverie
from reverie.integrations.torchrl import PrioritizedReplayBuffer, ReplayBuffer

BOTH = pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])


def steps(count, seed=0, dtype=torch.float32):
    """Steps as TorchRL's collectors return them."""
    generator = torch.Generator().manual_seed(seed)
    observation = torch.randn(count + 1, 3, generator=generator).to(dtype)
    return TensorDict(
        {
            "observation": observation[:-1],
            "action": torch.randint(4, (count,), generator=generator),
            "next": {
                "observation": observation[1:],
                "reward": torch.randn(count, 1, generator=generator),
                "done": torch.rand(count, 1, generator=generator) < 0.1,
            },
        },
        [count],
    )


def prioritized_table(**options):
    settings = {"max_size": 100, **options}
    return reverie.Table("replay", reverie.selectors.Prioritized(1.0), reverie.selectors.Fifo(), **settings)


@BOTH
def test_samples_are_the_steps_that_were_added_with_their_keys(kind):
    buffer, data = kind(100, batch_size=500), steps(20)
    keys = buffer.extend(data)
    sample = buffer.sample()
    row = (sample["index"].unsqueeze(1) == keys).int().argmax(dim=1)
    assert torch.equal(keys[row], sample["index"])
    for name in ["observation", "action", ("next", "observation"), ("next", "reward"), ("next", "done")]:
        assert torch.equal(sample[name], data[name][row])
        assert sample[name].dtype == data[name].dtype
    assert sample.batch_size == torch.Size([500])
    assert ("priority_weight" in set(sample.keys())) == (kind is PrioritizedReplayBuffer)


@BOTH
def test_sizes_and_writes_are_counted_and_the_oldest_leave(kind):
    buffer = kind(30, batch_size=4)
    keys = buffer.extend(steps(20))
    more = torch.cat([buffer.extend(steps(19, seed=1)), torch.tensor([buffer.add(steps(1, seed=2)[0])])])
    assert (len(buffer), buffer.write_count) == (30, 40)
    assert buffer.storage.contains(torch.cat([keys, more])).tolist() == [False] * 10 + [True] * 30
    assert torch.equal(buffer[:]["action"], torch.cat([steps(20)[10:], steps(19, 1), steps(1, 2)])["action"])
    assert buffer.stats() == {**buffer.stats(), "size": 30, "write_count": 40, "capacity": 30}
    buffer.empty()
    assert (len(buffer), buffer.write_count) == (0, 0)


def test_items_are_read_by_key_and_never_changed():
    buffer = ReplayBuffer(100, batch_size=4)
    keys = buffer.extend(steps(5))
    assert torch.equal(buffer[keys[[3, 1]]]["action"], steps(5)["action"][[3, 1]])
    assert buffer[int(keys[2])].batch_size == torch.Size([])
    assert buffer[int(keys[2])]["action"] == steps(5)["action"][2]
    with pytest.raises(TypeError, match="cannot be changed"):
        buffer[keys[:1]] = steps(1)
    with pytest.raises(TypeError, match="no positions"):
        buffer[2:4]
    with pytest.raises(TypeError, match="an item's key"):
        buffer.storage.get(torch.tensor([0.5]))
    with pytest.raises(reverie.UnknownKeyError):
        buffer[int(keys[2]) + 100]


def test_weights_are_those_of_torchrl_for_the_same_priorities():
    ours = PrioritizedReplayBuffer(10, alpha=0.7, beta=0.5, eps=1e-3, batch_size=200, seed=1)
    model = TensorDictPrioritizedReplayBuffer(
        alpha=0.7, beta=0.5, eps=1e-3, storage=LazyTensorStorage(10), batch_size=200
    )
    priorities, weights = torch.tensor([0.1, 0.5, 1.0, 2.0, 8.0]), []
    for buffer in (ours, model):
        index = buffer.extend(steps(5))
        buffer.update_priority(index, priorities)
        sample = buffer.sample()
        place = (sample["index"].unsqueeze(1) == index).int().argmax(dim=1)
        assert sample["priority_weight"].dtype == torch.float32
        weights.append([float(sample["priority_weight"][place == row].mean()) for row in range(1, 5)])
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)


def test_draws_follow_the_priorities():
    buffer = PrioritizedReplayBuffer(10, alpha=1.0, eps=0.0, batch_size=20_000, seed=3)
    keys = buffer.extend(steps(5))
    priorities = torch.tensor([1.0, 2.0, 3.0, 4.0, 10.0])
    buffer.update_priority(keys, priorities)
    counts = (buffer.sample()["index"].unsqueeze(1) == keys).sum(dim=0).numpy()
    assert chi_square(counts, priorities.numpy()) < LIMIT
    assert chi_square(counts, priorities.numpy()[::-1]) > LIMIT  # The twin: other priorities.


#: Chi-square of four degrees of freedom: a probability of about 1e-6.
LIMIT = 33.4


def chi_square(counts, weights):
    expected = counts.sum() * weights / weights.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def priorities_of(buffer):
    found = buffer.client.query("replay")
    return dict(zip(found.key.tolist(), found.priority.tolist(), strict=True))


def test_td_errors_of_a_sample_become_priorities():
    buffer = PrioritizedReplayBuffer(10, eps=0.5, batch_size=8, seed=1)
    buffer.extend(steps(3))
    sample = buffer.sample()
    sample["td_error"] = torch.arange(8.0, requires_grad=True).unsqueeze(1) * 1.0
    buffer.update_tensordict_priority(sample)
    wanted = dict.fromkeys(priorities_of(buffer), 1.0)
    wanted.update(zip(sample["index"].tolist(), (torch.arange(8) + 0.5).tolist(), strict=True))
    assert priorities_of(buffer) == wanted
    buffer.update_tensordict_priority(sample.exclude("td_error"))
    assert priorities_of(buffer) == wanted


def test_new_items_have_the_largest_priority_or_that_of_their_td_error():
    buffer = PrioritizedReplayBuffer(10, eps=0.0, batch_size=8)
    first = buffer.extend(steps(2).set("td_error", torch.tensor([3.0, 7.0])))
    later = buffer.extend(steps(1, 1).set("td_error", torch.tensor([2.0])), update_priority=False)
    assert priorities_of(buffer) == {int(first[0]): 3.0, int(first[1]): 7.0, int(later[0]): 7.0}


@pytest.mark.parametrize(("reduction", "wanted"), [("max", 4.0), ("mean", 2.5), ("sum", 10.0)])
def test_sequences_keep_their_batch_size_and_reduce_to_one_priority(reduction, wanted):
    buffer = PrioritizedReplayBuffer(10, batch_dims=2, eps=0.0, batch_size=3, reduction=reduction)
    keys = buffer.extend(steps(8).reshape(2, 4))
    sample = buffer.sample()
    assert sample.batch_size == sample["next"].batch_size == torch.Size([3, 4])
    assert sample["index"].shape == (3, 4)
    sample["td_error"] = torch.tensor([1.0, 2, 3, 4]).expand(3, 4).unsqueeze(-1)
    buffer.update_tensordict_priority(sample)
    assert all(priorities_of(buffer)[key] == wanted for key in set(sample["index"][:, 0].tolist()))
    assert torch.equal(buffer[keys]["action"], steps(8).reshape(2, 4)["action"])
    buffer.add(steps(4))
    assert len(buffer) == 3


def test_other_batch_dimensions_and_what_is_no_tensor_are_refused_by_name():
    buffer = ReplayBuffer(10, batch_size=3)
    with pytest.raises(ValueError, match=r"the batch size is \[2, 4\], .* reshape\(-1\)"):
        buffer.extend(steps(8).reshape(2, 4))
    with pytest.raises(ValueError, match=r"the batch size is \[3\], 1 dimensions, and must have 0"):
        buffer.add(steps(3))
    with pytest.raises(TypeError, match="'next/text' is a NonTensorData"):
        buffer.extend(steps(2).set(("next", "text"), "a note"))
    assert len(buffer) == 0


@BOTH
def test_transforms_are_applied_to_samples_and_inverted_for_steps(kind):
    transform = Compose(
        DoubleToFloat(in_keys=["observation"], in_keys_inv=[]), RewardScaling(0.0, 10.0, [("next", "reward")])
    )
    buffer, data = kind(100, batch_size=50, transform=transform), steps(1, dtype=torch.float64)
    buffer.extend(data)
    sample = buffer.sample()
    assert sample["observation"].dtype == torch.float32
    torch.testing.assert_close(sample["next", "reward"], (data["next", "reward"] * 10).expand(50, 1))
    buffer.append_transform(lambda data: data.set("added", torch.ones(data.shape)))
    assert buffer.sample()["added"].shape == (50,)


def test_a_transform_of_a_factory_is_made_at_the_first_use():
    buffer = ReplayBuffer(10, batch_size=2, transform_factory=lambda: RewardScaling(0.0, 2.0, [("next", "reward")]))
    assert not buffer.initialized
    data = steps(1)
    buffer.extend(data)
    assert float(buffer.sample()["next", "reward"][0]) == float(data["next", "reward"]) * 2


def test_a_schedule_changes_beta():
    buffer = PrioritizedReplayBuffer(10, beta=0.4, batch_size=100)
    keys = buffer.extend(steps(2))
    buffer.update_priority(keys, torch.tensor([1.0, 4.0]))
    schedule = LinearScheduler(buffer, "beta", final_value=1.0, num_steps=1)
    before = buffer.sample()["priority_weight"].min()
    schedule.step()
    assert buffer.sampler.beta == 1.0
    assert buffer.sample()["priority_weight"].min() < before


def test_batches_are_drawn_ahead():
    buffer = PrioritizedReplayBuffer(100, batch_size=4, prefetch=2)
    buffer.extend(steps(20))
    assert [sample.shape for _, sample in zip(range(5), buffer, strict=False)] == [torch.Size([4])] * 5
    buffer.shutdown()


@BOTH
@pytest.mark.parametrize("way", ["pickle", "state_dict", "folder"])
def test_a_saved_buffer_has_its_items_priorities_and_beta(kind, way, tmp_path):
    buffer = kind(100, batch_size=4)
    buffer.extend(steps(20).set("td_error", torch.arange(20.0)))
    if kind is PrioritizedReplayBuffer:
        buffer.sampler.beta = 0.9
    again = kind(100, batch_size=4)
    if way == "pickle":
        again = pickle.loads(pickle.dumps(buffer))
    elif way == "state_dict":
        again.load_state_dict(buffer.state_dict())
    else:
        buffer.dumps(tmp_path / "replay")
        buffer.dumps(tmp_path / "replay")
        again.loads(tmp_path / "replay")
    assert priorities_of(again) == priorities_of(buffer)
    assert torch.equal(again[:]["observation"], buffer[:]["observation"])
    assert again.sampler.beta == buffer.sampler.beta
    again.extend(steps(3).set("td_error", torch.arange(3.0)))
    assert (len(again), len(buffer), again.sample().shape) == (23, 20, torch.Size([4]))


def test_an_empty_buffer_of_this_process_does_not_wait():
    with pytest.raises(ValueError, match="has no complete transition yet"):
        PrioritizedReplayBuffer(10, batch_size=2).sample()


def test_a_server_is_shared_and_a_saved_buffer_refers_to_it(tmp_path):
    with reverie.Server(
        [prioritized_table()], checkpointer=reverie.checkpointers.DefaultCheckpointer(tmp_path)
    ) as server:
        actor, learner = (
            PrioritizedReplayBuffer(server=reverie.Client(server.address, transport="grpc"), eps=0.0, batch_size=64)
            for _ in range(2)
        )
        keys = actor.extend(steps(20))
        assert (len(learner), learner.write_count) == (20, 20)
        learner.update_priority(keys, torch.tensor([0.0] * 19 + [3.0]))
        assert set(learner.sample()["index"].tolist()) == {int(keys[-1])}
        assert torch.equal(actor[keys]["observation"], steps(20)["observation"])
        again = pickle.loads(pickle.dumps(actor.share()))
        learner.load_state_dict(again.state_dict())
        assert len(learner) == 20
        with pytest.raises(ValueError, match="saved by a buffer in its own process"):
            learner.load_state_dict(PrioritizedReplayBuffer(10, batch_size=1).state_dict())
        for buffer in (actor, learner, again):
            buffer.client.close()


def test_extended_or_sampled_data_can_be_extended_again():
    buffer = ReplayBuffer(100, batch_size=50)
    data = steps(3)
    first = buffer.extend(data)
    data.set("index", first)  # As TorchRL's buffers do with what they extend.
    again = torch.cat([buffer.extend(data), buffer.extend(buffer.sample()[:2])])
    assert len(buffer) == 8
    assert set(buffer.sample()["index"].tolist()) <= {*first.tolist(), *again.tolist()}
    assert "index" not in set(buffer[first].keys())


def test_a_draw_that_waits_for_the_limiter_lets_another_thread_extend():
    limiter = reverie.rate_limiters.MinSize(5)
    with reverie.Server([prioritized_table(rate_limiter=limiter)]) as server:
        buffer = PrioritizedReplayBuffer(server=server.address, batch_size=4)
        with ThreadPoolExecutor(1) as pool:
            sample = pool.submit(buffer.sample)
            while not buffer.client.why("replay").samples:
                assert not sample.done()
            buffer.extend(steps(5))
            assert sample.result().shape == torch.Size([4])


def test_options_are_refused_where_they_have_no_effect():
    with pytest.raises(ValueError, match="needs max_size"):
        ReplayBuffer()
    with pytest.raises(ValueError, match="beta must be between"):
        PrioritizedReplayBuffer(10, beta=1.5)
    with pytest.raises(TypeError, match="none can be replaced"):
        ReplayBuffer(10).set_storage(LazyTensorStorage(10))
    uniform = reverie.Table("replay", reverie.selectors.Uniform(), reverie.selectors.Fifo(), 10)
    with reverie.Server([uniform]) as server:
        for name, value in {"max_size": 5, "compression": "none", "seed": 1}.items():
            with pytest.raises(ValueError, match=f"{name} is an option of the table in this process"):
                ReplayBuffer(server=server.address, **{name: value})
        with pytest.raises(ValueError, match="alpha is an option"):
            PrioritizedReplayBuffer(server=server.address, alpha=0.5)
        with pytest.raises(ValueError, match="needs a table with sampler"):
            PrioritizedReplayBuffer(server=server.address)
        with pytest.raises(reverie.UnknownTableError):
            ReplayBuffer(server=server.address, table="other")


def test_priorities_of_a_uniform_buffer_are_refused_with_a_warning():
    buffer = ReplayBuffer(10, batch_size=2)
    keys = buffer.extend(steps(2).set("td_error", torch.ones(2)), update_priority=False)
    with pytest.warns(UserWarning, match="not prioritized"):
        buffer.update_priority(keys, 1.0)
    with pytest.raises(ValueError, match="3 priorities for 2 items"):
        PrioritizedReplayBuffer(10).update_priority(keys, torch.ones(3))


def test_a_buffer_of_this_process_is_not_copied_into_a_spawned_one():
    process = torch.multiprocessing.get_context("spawn").Process(target=len, args=(ReplayBuffer(10),))
    with pytest.raises(TypeError, match="keep the table on a server"):
        process.start()


def test_without_torchrl_the_import_names_the_extra(monkeypatch):
    import importlib
    import sys

    for name in [name for name in sys.modules if name.startswith("reverie.integrations")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchrl", None)
    with pytest.raises(ImportError, match=r"reverie\[torchrl\]"):
        importlib.import_module("reverie.integrations.torchrl")
