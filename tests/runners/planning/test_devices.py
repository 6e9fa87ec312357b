import dataclasses
import sys
import warnings

import pytest

pytest.importorskip("torch")

from reverie.agents.apex_dqn import agent as apex_dqn
from reverie.agents.ppo import agent as ppo
from reverie.runners.planning import devices
from reverie.runners.planning.devices import DeviceError, require_gpus
from reverie.runners.planning.topology import plan

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
    with pytest.raises(ValueError, match="gpus_per_actor is 2, and must be a share from 0 to 1"):
        dataclasses.replace(run, device="cuda", gpus_per_actor=2)


@pytest.mark.parametrize(
    ("has", "precision", "runner", "warned"),
    [
        (False, "bfloat16", "local", True),
        (False, "bfloat16", "process", True),
        (True, "bfloat16", "local", False),
        (False, "float32", "local", False),
        (False, "bfloat16", "ray", False),
    ],
)
def test_a_run_in_bfloat16_warns_on_a_processor_without_it(has, precision, runner, warned, monkeypatch):
    monkeypatch.setattr(devices, "has_bfloat16", lambda: has)
    config = dataclasses.replace(apex_dqn.load_preset("CartPole-v1").config, precision=precision)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan(apex_dqn, "CartPole-v1", runner=runner, config=config)
    said = [str(one.message) for one in caught if "precision" in str(one.message)]
    assert said == (
        [
            "precision is 'bfloat16', and this processor has no instructions for it: updates take several times as long"
            " as with precision=float32"
        ]
        if warned
        else []
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux knows of its processor")
def test_pytorch_and_the_processor_agree_on_bfloat16():
    with open("/proc/cpuinfo") as file:
        flags = file.read()
    if "avx512_bf16" in flags:
        assert devices.has_bfloat16()
    elif "avx2" in flags and not any(name in flags for name in ("avx512f", "avx_ne_convert")):
        assert not devices.has_bfloat16()
    else:
        pytest.skip("a processor of another kind")
