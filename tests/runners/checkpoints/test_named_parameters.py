"""Parameters in checkpoints have names, which are compared when they are read."""

import dataclasses
import io
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import reverie  # noqa: E402
from reverie import agents  # noqa: E402
from reverie.agents.core import RunSettings  # noqa: E402
from reverie.agents.flat import FlatNetwork  # noqa: E402
from reverie.agents.named_parameters import ParameterError  # noqa: E402
from reverie.runners import CheckpointError, RoleError, checkpoints, train  # noqa: E402
from reverie.runners.checkpoints import run_checkpoints  # noqa: E402

RUN = RunSettings(
    target_return=0.0, max_env_steps=160, evaluate_every=160, screening_episodes=1, confirmation_episodes=1
)
ENVIRONMENTS = {"sac": "Pendulum-v1", "dqn": "CartPole-v1", "gorila": "CartPole-v1"}


def config_of(name):
    agent = agents.find(name)
    small = {"hidden": (8,), "policy_hidden": (8,), "critic_hidden": (8,), "num_actors": 1, "num_learners": 1}
    small |= {"envs_per_actor": 2, "learning_starts": 64, "batch_size": 8, "num_parameter_shards": 3}
    small |= {"samples_per_insert": 8.0}
    config = agent.load_preset(ENVIRONMENTS[name]).config
    return dataclasses.replace(config, **{k: v for k, v in small.items() if hasattr(config, k)})


def run(name, folder=None, steps=160, **options):
    settings = dataclasses.replace(RUN, max_env_steps=steps)
    return train(
        agents.find(name),
        ENVIRONMENTS[name],
        config=config_of(name),
        run=settings,
        folder=folder,
        stop_when_confirmed=False,
        **options,
    )


@pytest.fixture(scope="module", params=["dqn", "sac", "gorila"])
def trained_checkpoint(request, tmp_path_factory):
    """An agent's name, and its checkpoint."""
    folder = tmp_path_factory.mktemp(request.param)
    run(request.param, folder)
    return request.param, checkpoints.find(folder)


@pytest.mark.long
def test_the_file_of_arrays_has_networks_and_moments_under_the_names_of_parameters(trained_checkpoint):
    name, path = trained_checkpoint
    with zipfile.ZipFile(path / "arrays.npz") as packed:
        names = {one.removesuffix(".npy") for one in packed.namelist()}
        weight = np.load(io.BytesIO(packed.read("weights/parameters/0.layers.0.weight.npy"))) if name == "dqn" else None
    expected = {
        "dqn": {
            "weights/parameters/0.layers.0.weight",
            "learner/networks/target/0.layers.0.weight",
            "learner/optimizers/online/exp_avg/0.layers.0.weight",
        },
        "sac": {"weights/parameters/torso.layers.0.weight", "learner/networks/critics/layers.0.weight"},
        "gorila": {
            "learner/server/parameters/0.layers.0.weight",
            "learner/server/moments/exp_avg_sq/0.layers.0.weight",
            "learner/networks/online-0/0.layers.0.weight",
        },
    }[name]
    assert expected <= names
    assert weight is None or weight.shape == (8, 4)
    assert not any(one.isdecimal() for one in names)


@pytest.fixture
def edited(trained_checkpoint, monkeypatch):
    """A function: resume the checkpoint as if its state had been edited."""
    name, path = trained_checkpoint
    load = checkpoints.load

    def resume(edit, **options):
        def loaded(where):
            state = load(where)
            edit(state)
            return state

        monkeypatch.setattr(run_checkpoints, "load", loaded)
        return run(name, steps=300, resume=path, **options)

    return resume


def first(named):
    return next(iter(named))


EDITS = {
    "lacks": lambda named: named.pop(first(named)),
    "also has": lambda named: named.update({"layers.9.weight": np.zeros(3, np.float32)}),
    "has the weight": lambda named: named.update({first(named): np.zeros((7, 7), np.float32)}),
}


@pytest.mark.parametrize("words", EDITS)
@pytest.mark.parametrize("place", ["weights", "network", "moments"])
def test_a_missing_an_unexpected_and_a_misshapen_parameter_are_refused_by_name(
    trained_checkpoint, edited, place, words
):
    name, path = trained_checkpoint
    named = []

    def edit(state):
        learner = state["learner"]
        if place == "weights":
            found = state["weights"]["parameters"]
        elif place == "network":
            found = learner["networks"][list(learner["networks"])[-1]]
        elif name == "gorila":
            found = learner["server"]["moments"]["exp_avg"]
        else:
            found = learner["optimizers"][first(learner["optimizers"])]["exp_avg"]
        named.append("layers.9.weight" if words == "also has" else first(found))
        EDITS[words](found)

    with pytest.raises(CheckpointError) as caught:
        edited(edit)
    assert words in str(caught.value)
    assert named[-1] in str(caught.value)
    assert caught.value.path == path
    if place == "network":
        assert "network " in str(caught.value)
    if place == "moments":
        assert ("moments exp_avg" if name == "gorila" else "optimizer ") in str(caught.value)


def test_a_missing_network_is_named(trained_checkpoint, edited):
    with pytest.raises(CheckpointError, match=r"does not fit this run: its networks are .*, and this learner's"):
        edited(lambda state: state["learner"]["networks"].popitem())


@pytest.mark.long
@pytest.mark.xdist_group("fork server")
@pytest.mark.parametrize("trained_checkpoint", ["gorila"], indirect=True)
def test_parameters_of_a_server_are_compared_before_its_shards_start(trained_checkpoint, edited):
    with pytest.raises(CheckpointError, match="does not fit this run: the parameter server has other weights"):
        edited(lambda state: EDITS["lacks"](state["learner"]["server"]["parameters"]), runner="process")


@pytest.mark.long
@pytest.mark.xdist_group("fork server")
def test_a_learner_in_a_process_names_them_too(trained_checkpoint, edited):
    def edit(state):
        networks = state["learner"]["networks"]
        EDITS["lacks"](networks[list(networks)[-1]])

    with pytest.raises(RoleError, match=r"network .* has other weights than this run: it lacks") as caught:
        edited(edit, runner="process")
    assert caught.value.error == "ParameterError"


def test_the_policy_of_a_checkpoint_is_compared_by_name(trained_checkpoint, monkeypatch):
    _, path = trained_checkpoint
    assert reverie.load_policy(path).run.env_steps >= 160
    from reverie.runners.checkpoints import policies

    load = checkpoints.load

    def loaded(where):
        state = load(where)
        EDITS["lacks"](state["weights"]["parameters"])
        return state

    monkeypatch.setattr(policies, "load", loaded)
    with pytest.raises(CheckpointError, match="has other weights than its agent: it lacks "):
        reverie.load_policy(path)


def test_an_agent_whose_policy_has_no_network_is_refused_before_it_trains(tmp_path):
    agent = dataclasses.replace(agents.find("dqn"), make_policy=lambda spec, config: lambda observations: None)
    with pytest.raises(TypeError, match="the policy of dqn has no `module`, whose parameters are the weights in"):
        train(agent, "CartPole-v1", run=RUN, folder=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_names_and_vectors_are_converted_in_the_order_of_memory():
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 5, 2), torch.nn.Linear(4, 2)).to(memory_format=torch.channels_last)
    weight = module[0].weight.detach().clone().numpy()
    network = FlatNetwork(module, trainable=True)
    named = network.named()
    assert list(named) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert (named["0.weight"] == weight).all()
    assert all(one.flags.c_contiguous and one.base is None for one in named.values())
    assert torch.equal(network.joined(named), network.flat)
    doubled = network.named(network.flat * 2)
    assert (doubled["0.weight"] == 2 * weight).all()
    network.load_named(doubled)
    assert (module[0].weight.detach().numpy() == 2 * weight).all()
    with pytest.raises(ParameterError, match=r"has the weight 1.bias as float64 \(2,\), and this run needs float32"):
        network.load_named({**named, "1.bias": np.zeros(2)})
    assert (network.named()["0.weight"] == 2 * weight).all(), "what is refused changes nothing"


def test_arrays_of_states_with_odd_keys_keep_apart(tmp_path):
    state = {
        "file": np.array([1.0]),
        "a/b": np.array([2.0]),
        "a": {"b": np.array([3.0])},
        1: np.ones(1),
        "1": np.ones(2),
    }
    loaded = checkpoints.load(checkpoints.save(tmp_path, 7, state, ""))
    assert loaded["file"] == 1.0
    assert (loaded["a/b"], loaded["a"]["b"]) == (2.0, 3.0)
    assert (len(loaded[1]), len(loaded["1"])) == (1, 2)


def test_an_optimiser_of_several_parameters_is_refused_with_what_to_do():
    from reverie.agents.core import Stopwatch
    from reverie.runners import plan

    agent = agents.find("dqn")
    topology = plan(agent, "CartPole-v1")
    learner = agent.make_learner(topology.env, topology.config, None, seed=0, watch=Stopwatch())
    learner._optimizers["online"] = torch.optim.Adam(learner._networks["online"].parameters)
    with pytest.raises(TypeError, match="has an optimiser that steps 6 parameters: make it over `flat` of one"):
        learner.state_dict()
