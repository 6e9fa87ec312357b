"""The optimisers of one vector: their numbers are PyTorch's, and none of them imports its compiler."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from reverie.agents.flat import FlatNetwork  # noqa: E402
from reverie.agents.optimizers import (  # noqa: E402
    adam,
    centred_rmsprop,
    descend_clipped,
    load_optimizer,
    optimizer_state,
    rmsprop,
)

MAKE = {
    "adam": lambda vector: adam(vector, 1e-2, 1e-5),
    "rmsprop": lambda vector: rmsprop(vector, 1e-2, 0.9, 1e-2),
    "centred": lambda vector: centred_rmsprop(vector, 1e-2, 1e-4),
}
THEIRS = {
    "adam": lambda flat: torch.optim.Adam([flat], lr=1e-2, eps=1e-5, fused=True),
    "rmsprop": lambda flat: torch.optim.RMSprop([flat], lr=1e-2, alpha=0.9, eps=1e-2),
}


class Vector:
    def __init__(self):
        self.flat = torch.nn.Parameter(torch.linspace(-1, 1, 64))


def step(optimizer, vector, count, first=0):
    for at in range(first, first + count):
        vector.flat.grad = torch.sin(torch.arange(64) * (at + 1.0))
        optimizer.step()


@pytest.mark.parametrize("kind", THEIRS)
def test_steps_are_those_of_pytorch(kind):
    ours, theirs = Vector(), Vector()
    step(MAKE[kind](ours), ours, 20)
    step(THEIRS[kind](theirs.flat), theirs, 20)
    torch.testing.assert_close(ours.flat, theirs.flat, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", MAKE)
def test_another_optimizer_goes_on_from_a_state_at_its_own_rate(kind):
    one, other = Vector(), Vector()
    optimizer, resumed = MAKE[kind](one), MAKE[kind](other)
    step(optimizer, one, 5)
    saved = optimizer_state(optimizer)
    with torch.no_grad():
        other.flat.copy_(one.flat)
    resumed.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"] = 3e-2
    load_optimizer(resumed, saved)
    step(optimizer, one, 5, 5)
    assert (optimizer_state(resumed)[resumed.MOMENTS[0]] == saved[resumed.MOMENTS[0]]).all(), "the state was copied"
    step(resumed, other, 5, 5)
    assert resumed.param_groups[0]["lr"] == 3e-2
    assert torch.equal(one.flat, other.flat)


@pytest.mark.parametrize("kind", THEIRS)
def test_the_state_of_pytorchs_own_is_taken(kind):
    """Checkpoints of IMPALA had that of `torch.optim.RMSprop`, with a count of steps that the formula does not use."""
    ours, theirs = Vector(), Vector()
    other = THEIRS[kind](theirs.flat)
    step(other, theirs, 5)
    optimizer = MAKE[kind](ours)
    with torch.no_grad():
        ours.flat.copy_(theirs.flat)
    load_optimizer(optimizer, optimizer_state(other))
    step(other, theirs, 5, 5)
    step(optimizer, ours, 5, 5)
    torch.testing.assert_close(ours.flat, theirs.flat, rtol=1e-6, atol=1e-7)


def test_a_state_before_the_first_step_is_empty_and_makes_the_next_one_new():
    vector = Vector()
    optimizer = adam(vector, 1e-2)
    assert optimizer_state(optimizer) == {}
    step(optimizer, vector, 3)
    load_optimizer(optimizer, {})
    assert optimizer_state(optimizer) == {}
    assert float(optimizer._own_state()["step"]) == 0


def test_a_process_that_learns_imports_neither_pytorchs_compiler_nor_sympy():
    """The first `torch.optim.Optimizer` of a process imports it, and `Module.to_empty` SymPy: seconds of each start."""
    code = """
import sys, torch
from reverie.agents.layers import initialised
from reverie.agents.optimizers import adam, centred_rmsprop, rmsprop
initialised(lambda: torch.nn.Sequential(torch.nn.Linear(2, 2)), 0)
class Vector:
    flat = torch.nn.Parameter(torch.ones(3))
for one in (adam(Vector, 0.1), rmsprop(Vector, 0.1, 0.9, 0.1), centred_rmsprop(Vector, 0.1, 0.1)):
    one.descend(Vector.flat, torch.ones(3))
    one.load_state_dict(one.state_dict())
sys.exit(not sys.modules.keys().isdisjoint({"torch._dynamo", "sympy"}))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_a_clipped_step_is_that_of_pytorch_and_gives_the_norm_before(max_norm):
    theirs = torch.nn.Linear(3, 2)
    ours = torch.nn.Linear(3, 2)
    ours.load_state_dict(theirs.state_dict())
    network, rows = FlatNetwork(ours, trainable=True), 5 * torch.ones(4, 3)
    theirs(rows).square().sum().backward()
    wanted = torch.nn.utils.clip_grad_norm_(theirs.parameters(), max_norm)
    torch.optim.SGD(theirs.parameters(), lr=0.1).step()
    loss = ours(rows).square().sum()
    norm = descend_clipped(network, torch.optim.SGD([network.flat], lr=0.1), loss, max_norm)
    torch.testing.assert_close(norm, wanted)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_step_that_is_not_to_be_made_gives_the_norm_and_moves_nothing():
    network = FlatNetwork(torch.nn.Linear(3, 2), trainable=True)
    before, optimizer = network.numpy().copy(), adam(network, 0.1)
    loss = lambda: network.module(torch.ones(1, 3)).sum()  # noqa: E731
    assert descend_clipped(network, optimizer, loss(), 1.0, torch.tensor(False)) > 1
    assert (network.numpy() == before).all()
    assert optimizer_state(optimizer) == {}
    assert descend_clipped(network, optimizer, loss(), 1.0, torch.tensor(True)) > 1
    assert (network.numpy() != before).all()
