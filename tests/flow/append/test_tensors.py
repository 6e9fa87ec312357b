"""PyTorch tensors as the data of inserts and appends: taken, or refused with the name of their column."""

import sys

import numpy as np
import pytest

import reverie
from reverie import SignatureError

torch = pytest.importorskip("torch")


def insert(client, tensor):
    client.insert({"obs": {"x": tensor}}, {"t": 1.0})


def insert_batch(client, tensor):
    client.insert_batch("t", {"obs": {"x": tensor[None]}})


def append(client, tensor):
    with client.trajectory_writer(1) as writer:
        writer.append({"obs": {"x": tensor}})
        writer.create_item("t", 1.0, {"obs": {"x": writer.history["obs"]["x"][-1]}})


def sequence(client, tensor):
    with client.sequence_writer("t", 1, 1, 1) as writer:
        writer.append({"obs": {"x": tensor}})


def episodes(client, tensor):
    with client.episode_writer("t", num_envs=1, autoreset="disabled") as writer:
        writer.append({"obs": {"x": tensor[None]}}, ended=np.ones(1, bool))


def transition(client, tensor):
    with client.transition_writer("t") as writer:
        writer.append({"x": tensor}, 0, 0.0, True, False, final_obs={"x": tensor})


def structured(client, tensor):
    step = reverie.structured.create_reference_step({"obs": {"x": None}})
    config = reverie.structured.create_config({"obs": {"x": step["obs"]["x"][-1]}}, "t")
    with client.structured_writer([config]) as writer:
        writer.append({"obs": {"x": tensor}})


pytestmark = pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning", "ignore:ComplexHalf:UserWarning")

EVERY_WAY = pytest.mark.parametrize(
    "write",
    [insert, insert_batch, append, sequence, episodes, transition, structured],
    ids=lambda write: write.__name__,
)


class OnGpu(torch.Tensor):
    """A tensor that reports to be on a GPU, where the test has none."""

    device = torch.device("cuda", 0)


def values():
    return torch.tensor([[1.0, -2.5, 3.0], [0.5, 0.0, 4.0]])


TAKEN = {
    "float32": values,
    "bfloat16": lambda: values().bfloat16(),
    "float8": lambda: values().to(torch.float8_e4m3fn),
    "with a gradient": lambda: values().requires_grad_(),
    "bfloat16 with a gradient": lambda: values().bfloat16().requires_grad_(),
    "of a graph": lambda: values().requires_grad_() * 2,
    "parameter": lambda: torch.nn.Parameter(values()),
    "transposed": lambda: values().T,
    "conjugate": lambda: (values() * 1j).conj(),
    "negative bit": lambda: (values() * 1j).conj().imag,
}


@EVERY_WAY
@pytest.mark.parametrize("make", TAKEN.values(), ids=TAKEN)
def test_tensors_of_the_cpu_are_taken_with_their_dtype_and_values(connect, write, make):
    pytest.importorskip("ml_dtypes")
    client, tensor = connect(), make()
    write(client, tensor)
    column = client.sample_batch("t", 1).data["obs"]["x"]
    assert column.dtype.name == str(tensor.dtype).removeprefix("torch.")
    assert column[0].reshape(-1)[-6:].tolist() == tensor.detach().flatten().tolist()


REFUSED = {
    "on a GPU": (lambda: values().as_subclass(OnGpu), r"tensor of float32 on cuda:0, want one on the CPU; \.cpu\(\)"),
    "meta": (lambda: values().to("meta"), "on meta, want one on the CPU; no values are there"),
    "sparse": (lambda: values().to_sparse(), r"a torch\.sparse_coo tensor, want a dense one: \.to_dense\(\)"),
    "complex of 32 bits": (lambda: values().to(torch.complex32), "a tensor of complex32"),
}


@EVERY_WAY
@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
@pytest.mark.parametrize(("make", "text"), REFUSED.values(), ids=REFUSED)
def test_tensors_that_cannot_be_stored_are_refused_with_their_column(connect, write, make, text):
    client = connect()
    with pytest.raises(SignatureError, match=rf"column '(obs/)?x': got .*{text}") as caught:
        write(client, make())
    assert caught.value.path in ("obs/x", "x")
    assert client.info().tables["t"].current_size == 0


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_a_nested_tensor_is_refused_with_its_column(connect):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(SignatureError, match="column 'obs/x': got a nested tensor"):
        insert(connect(), nested)


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_without_ml_dtypes_bfloat16_is_refused_with_its_column(connect, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(SignatureError, match=r"column 'obs/x': got a tensor of bfloat16.*pip install ml_dtypes"):
        insert(connect(), values().bfloat16())


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_a_gradient_is_not_followed_into_the_table(connect):
    client, weight = connect(), torch.ones(2, requires_grad=True)
    insert(client, weight * 3)
    batch = next(client.batches("t", 1, as_="torch"))
    assert not batch.data["obs"]["x"].requires_grad
    assert weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_keys_and_priorities_may_be_tensors_also_with_a_gradient(connect, dtype):
    client = connect()
    keys = client.insert_batch("t", {"a": np.arange(2)}, priorities=torch.tensor([1.5, 2.5], dtype=dtype))
    assert client.get("t", torch.as_tensor(keys)).info.priority.tolist() == [1.5, 2.5]
    errors = torch.tensor([3.0, 4.0], dtype=dtype, requires_grad=True)
    assert client.update_priorities("t", torch.as_tensor(keys), errors) == (2, 0)
    assert client.get("t", keys).info.priority.tolist() == [3.0, 4.0]
    assert client.delete("t", torch.as_tensor(keys)) == (2, 0)


def test_priorities_on_a_device_are_refused_by_their_name(connect):
    client = connect()
    keys = client.insert_batch("t", {"a": np.arange(2)})
    with pytest.raises(reverie.SignatureError, match=r"'priorities'.*meta"):
        client.update_priorities("t", keys, torch.ones(2, device="meta"))
    with pytest.raises(reverie.SignatureError, match=r"'deletes'.*meta"):
        client.delete("t", torch.ones(2, dtype=torch.int64, device="meta"))
