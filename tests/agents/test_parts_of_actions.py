"""Actions of several choices: numbered as a whole, or drawn part by part."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from reverie.agents.actions import ActionEnumeration  # noqa: E402
from reverie.agents.distributions import Categorical, log_pi_of, log_softmax  # noqa: E402


def test_enumerated_choices_are_unique_and_whole():
    numbers = np.arange(6)
    vectors = ActionEnumeration((2, 3)).to_env(numbers)
    assert vectors.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert np.array_equal(ActionEnumeration((2, 3)).to_env_tensor(torch.from_numpy(numbers)).numpy(), vectors)
    assert ActionEnumeration(()).to_env(numbers) is numbers


def test_the_parts_of_an_action_are_independent():
    """log pi of a vector is the sum over its parts, draws follow it, and each part is normalised by itself."""
    sizes = (2, 3)
    logits = torch.tensor([[0.0, 1.0, 0.5, -0.5, 0.25]])
    log_pi = log_softmax(logits, sizes)
    assert torch.allclose(log_pi[0, :2].exp().sum(), torch.tensor(1.0))
    assert torch.allclose(log_pi[0, 2:].exp().sum(), torch.tensor(1.0))
    whole = [log_pi_of(log_pi, torch.tensor([[a, b]]), sizes) for a in range(2) for b in range(3)]
    assert torch.allclose(torch.cat(whole).exp().sum(), torch.tensor(1.0))
    assert torch.allclose(whole[5], log_pi[0, 1] + log_pi[0, 4])
    assert Categorical(sizes=sizes).best(log_pi).tolist() == [[1, 0]]
    n = 20_000
    drawn = Categorical(sizes=sizes).draw(log_pi.expand(n, -1), np.random.default_rng(0)).numpy()
    for part, (start, size) in enumerate(((0, 2), (2, 3))):
        for choice in range(size):
            p = float(log_pi[0, start + choice].exp())
            assert abs((drawn[:, part] == choice).mean() - p) < 5 * (p * (1 - p) / n) ** 0.5
