import dataclasses
import warnings

import pytest

torch = pytest.importorskip("torch")

from reverie.agents.apex_dqn import agent as apex_dqn  # noqa: E402
from reverie.agents.ppo import agent as ppo  # noqa: E402
from reverie.runners import train  # noqa: E402
from reverie.runners.planning import devices  # noqa: E402
from reverie.runners.planning.devices import DeviceError, require_gpus  # noqa: E402
from reverie.runners.planning.plan import plan  # noqa: E402

pytest.importorskip("gymnasium")


def test_the_learner_asks_ray_for_a_gpu_and_actors_for_the_share_that_is_set():
    preset = apex_dqn.load_preset("CartPole-v1")
    run = dataclasses.replace(preset.run, device="cuda")
    gpus = {place.role: place.num_gpus for place in plan(apex_dqn, "CartPole-v1", runner="ray", run=run).places}
    assert gpus == {"shard": 0, "learner": 1, "actor": 0, "evaluator": 0}
    shared = dataclasses.replace(run, gpus_per_actor=0.25)
    gpus = {place.role: place.num_gpus for place in plan(apex_dqn, "CartPole-v1", runner="ray", run=shared).places}
    assert gpus == {"shard": 0, "learner": 1, "actor": 0.25, "evaluator": 0.25}
    topology = plan(apex_dqn, "CartPole-v1", runner="ray", run=shared)
    require_gpus(topology, 2.0, 1.75)
    with pytest.raises(DeviceError, match=r"takes 1\.75 GPUs \(1 for each learner of 1, .* has 2, 1\.5 of them free"):
        require_gpus(topology, 2.0, 1.5)
    without = plan(apex_dqn, "CartPole-v1", runner="ray")
    assert not any(place.num_gpus for place in without.places)
    require_gpus(without, 0.0, 0.0)


def test_the_plan_takes_a_device_for_auto(monkeypatch):
    found = {}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        for agent in (apex_dqn, ppo):
            run = dataclasses.replace(agent.load_preset("CartPole-v1").run, device="auto")
            found[agent.name, there] = plan(agent, "CartPole-v1", run=run).run.device
    assert found == {
        ("apex-dqn", False): "cpu",
        ("ppo", False): "cpu",
        ("apex-dqn", True): "cuda",
        ("ppo", True): "cpu",
    }
    with pytest.raises(DeviceError, match="'auto' checks this machine, and Ray places roles on its cluster"):
        plan(ppo, "CartPole-v1", runner="ray", run=run)


def test_a_run_is_trained_with_the_device_that_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings = {"max_env_steps": 30, "evaluate_every": 30, "screening_episodes": 1, "confirmation_episodes": 1}
    result = train("dqn", "CartPole-v1", device="auto", folder=tmp_path, **settings)
    assert result.topology.run.device == "cpu"
    assert 'device = "cpu"' in (tmp_path / "preset.toml").read_text()


def test_invalid_gpu_settings_are_refused():
    run = apex_dqn.load_preset("CartPole-v1").run
    with pytest.raises(
        DeviceError, match="'cuda:1' names a GPU of this machine, and Ray chooses the GPUs of its roles"
    ):
        plan(apex_dqn, "CartPole-v1", runner="ray", run=dataclasses.replace(run, device="cuda:1"))
    shared = dataclasses.replace(run, device="cuda", gpus_per_actor=0.25)
    with pytest.raises(
        DeviceError, match=r"is shared by all roles with the runner 'process', and gpus_per_actor is 0\.25"
    ):
        plan(apex_dqn, "CartPole-v1", runner="process", run=shared)
    with pytest.raises(DeviceError, match=r"'cpu' is the run's actor_device, and on Ray .* gpus_per_actor"):
        plan(apex_dqn, "CartPole-v1", runner="ray", run=dataclasses.replace(run, device="cuda", actor_device="cpu"))
    with pytest.raises(DeviceError, match=r"'cuda:7' is missing: PyTorch .* finds . CUDA devices"):
        plan(apex_dqn, "CartPole-v1", run=dataclasses.replace(run, actor_device="cuda:7"))
    with pytest.raises(ValueError, match='actor_device is \'tpu\', and must be "cpu", "cuda" or "cuda:N"'):
        dataclasses.replace(run, actor_device="tpu")
    with pytest.raises(DeviceError, match="is not supported by ppo"):
        plan(ppo, "CartPole-v1", runner="ray", run=dataclasses.replace(run, device="cuda"))
    with pytest.raises(ValueError, match=r'gpus_per_actor is 0\.5 and device "cpu": ask for device "cuda" too'):
        dataclasses.replace(run, gpus_per_actor=0.5)
    with pytest.raises(ValueError, match=r"gpus_per_actor is 2\.0, and must be a share from 0 to 1"):
        dataclasses.replace(run, device="cuda", gpus_per_actor=2)


BOTH, UPDATES, ACTIONS = "updates and actions", "updates", "actions"


@pytest.mark.parametrize(
    ("has", "precision", "runner", "where", "slow"),
    [
        (False, "bfloat16", "local", {}, BOTH),
        (False, "bfloat16", "process", {}, BOTH),
        (False, "bfloat16", "process", {"device": "cuda", "actor_device": "cpu"}, ACTIONS),
        (False, "bfloat16", "process", {"device": "cpu", "actor_device": "cuda"}, UPDATES),
        (False, "bfloat16", "process", {"device": "cuda"}, None),
        (True, "bfloat16", "local", {}, None),
        (False, "float32", "local", {}, None),
        (False, "bfloat16", "ray", {}, None),
    ],
)
def test_bfloat16_on_a_processor_without_it_is_warned_of(has, precision, runner, where, slow, monkeypatch):
    monkeypatch.setattr(devices, "has_bfloat16", lambda: has)
    preset = apex_dqn.load_preset("CartPole-v1")
    config, run = dataclasses.replace(preset.config, precision=precision), dataclasses.replace(preset.run, **where)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        devices.warn_of_precision(config, run, runner)
    text = (
        f"precision is 'bfloat16', and this processor has no instructions for it: {slow} take several times as long as"
        " with precision=float32"
    )
    assert [str(one.message) for one in caught] == ([] if slow is None else [text])


def test_a_run_warns_once_and_names_the_line_that_began_it(monkeypatch):
    monkeypatch.setattr(devices, "has_bfloat16", lambda: False)
    preset = apex_dqn.load_preset("CartPole-v1")
    config = dataclasses.replace(preset.config, precision="bfloat16")
    run = dataclasses.replace(preset.run, max_env_steps=100, evaluate_every=100, screening_episodes=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(apex_dqn, "CartPole-v1", run=run, config=config)
    assert [one.filename for one in caught if "precision" in str(one.message)] == [__file__]


@pytest.mark.parametrize(
    ("capabilities", "has"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bw": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "avx_ne_convert": True}, True),
        ({"architecture": "aarch64"}, True),
    ],
)
def test_a_processor_has_bfloat16_if_it_has_instructions_for_it_or_if_that_is_not_known(capabilities, has, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert devices.has_bfloat16() == has
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert devices.has_bfloat16()
