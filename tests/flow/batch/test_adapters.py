"""Batches as the arrays of other libraries, over every transport."""

import functools
import pickle

import numpy as np
import pytest

import reverie


def rows(count=40):
    return {
        "x": np.arange(count * 3, dtype=np.float32).reshape(count, 3),
        "deep": {"n": np.arange(count, dtype=np.int32), "f": np.arange(count) % 2 == 0},
        "s": np.array(["a"] * count),
    }


@pytest.mark.long
def test_jax_arrays_hold_what_was_stored_and_outlive_their_batch(connect):
    jax = pytest.importorskip("jax")
    client = connect()
    client.insert_batch("t", {**rows(), "big": np.full(40, 2.0**60)})
    held = []
    with client.batches("t", 16, as_="jax", prefetch=2) as batches:
        for _ in range(20):
            batch = next(batches)
            held.append((batch.data["deep"]["n"], batch.data["x"]))
    for n, x in held:
        assert isinstance(x, jax.Array)
        assert (x.dtype, n.dtype) == (np.float32, np.int32)
        np.testing.assert_array_equal(np.asarray(x)[:, 0], np.asarray(n) * 3)
    assert isinstance(batch.data["s"], np.ndarray)
    assert isinstance(batch.info.key, np.ndarray)
    assert batch.info.key.dtype == np.int64
    assert float(batch.data["big"][0]) == 2.0**60
    assert batch.data["deep"]["f"].dtype == bool
    on = next(client.batches("t", 4, as_="jax", device=jax.devices("cpu")[0])).data["x"]
    assert on.devices() == {jax.devices("cpu")[0]}


def test_jax_takes_the_types_of_ml_dtypes(connect):
    pytest.importorskip("jax")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    client = connect()
    client.insert_batch("t", {"h": np.ones((4, 2), ml_dtypes.bfloat16)})
    assert next(client.batches("t", 3, as_="jax")).data["h"].dtype == ml_dtypes.bfloat16


def test_a_tensordict_has_the_names_and_the_size_of_the_batch(connect):
    torch = pytest.importorskip("torch")
    pytest.importorskip("tensordict")
    client = connect()
    step = rows()
    del step["s"]
    client.insert_batch("t", step)
    with client.batches("t", 8, as_="tensordict") as batches:
        batch = next(batches)
    assert batch.data.batch_size == torch.Size([8])
    assert batch.data["deep", "n"].dtype == torch.int32
    assert torch.equal(batch.data["x"][:, 0], batch.data["deep", "n"] * 3.0)
    client.reset("t")
    client.insert_batch("t", [np.zeros((4, 2))])
    with pytest.raises(TypeError, match="dictionaries"):
        next(client.batches("t", 2, as_="tensordict"))


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
@pytest.mark.parametrize("library", ["torch", "jax", "tensordict"])
@pytest.mark.parametrize("borders", ["drop", "pad"])
def test_masks_and_starts_of_windows_are_arrays_of_the_same_library_as_their_columns(connect, library, borders):
    framework = pytest.importorskip({"jax": "jax"}.get(library, "torch"))
    pytest.importorskip(library)
    kind = framework.Array if library == "jax" else framework.Tensor
    client = connect()
    with client.trajectory_writer(6) as writer:
        for step in range(6):
            writer.append({"x": np.float32(step)})
        writer.create_item("t", 1.0, {"x": writer.history["x"][:]})
    with client.windows("t", 4, 3, burn_in=1, borders=borders, as_=library, timeout=200) as windows:
        batch = next(windows)
    there = batch.mask if borders == "pad" else batch.is_first
    fields = {"start": (4,), "loss_mask": (4, 4), "is_first": (4, 4), **({"mask": (4, 4)} if borders == "pad" else {})}
    for name, shape in fields.items():
        assert isinstance(getattr(batch, name), kind), name
        assert tuple(getattr(batch, name).shape) == shape
    first = np.asarray(batch.start)
    assert there is not None
    for row, start in enumerate(first.tolist()):
        steps = np.arange(start, start + 4)
        inside = (steps >= 0) & (steps < 6)
        np.testing.assert_array_equal(np.asarray(batch.data["x"])[row][inside], steps[inside])
        np.testing.assert_array_equal(np.asarray(batch.loss_mask)[row], inside & (np.arange(4) >= 1))


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
@pytest.mark.parametrize("library", ["torch", "jax", "tensordict"])
@pytest.mark.parametrize("normalise", ["batch", "table"])
def test_importance_weights_are_float32_of_the_kind_of_the_columns(connect, uniform, library, normalise):
    framework = pytest.importorskip({"jax": "jax"}.get(library, "torch"))
    pytest.importorskip(library)
    client = connect(uniform("t", sampler=reverie.selectors.Prioritized(1.0, seed=1)))
    client.insert_batch("t", rows(), priorities=np.arange(1.0, 41.0))
    with client.batches("t", 16, as_=library, prefetch=0) as batches:
        batch = pickle.loads(pickle.dumps(next(batches)))
    weights = batch.weights(0.4, normalise)
    assert isinstance(weights, framework.Array if library == "jax" else framework.Tensor)
    assert weights.dtype == (np.float32 if library == "jax" else framework.float32)
    raw = (40 * batch.info.probability) ** -0.4
    largest = raw.max() if normalise == "batch" else (40 / 820) ** -0.4
    np.testing.assert_allclose(np.asarray(weights), raw / largest, rtol=1e-6)
    if library != "jax":
        loss = (weights * framework.ones(16, requires_grad=True)).mean()
        loss.backward()
        assert loss.dtype == framework.float32


@pytest.mark.parametrize(
    ("options", "word"),
    [({"as_": "jax", "pinned": True}, "pinned"), ({"pinned": True}, "pinned"), ({"device": "cpu"}, "device")],
)
def test_options_of_other_libraries_are_refused(connect, options, word):
    with pytest.raises(ValueError, match=word):
        connect().batches("t", 1, **options)


# A worker that is spawned imports PyTorch, for seconds: what it is given is the same pickle over either transport.
@pytest.mark.long
@pytest.mark.parametrize(
    ("connect", "context", "workers"),
    [("shared-memory", "fork", 2), ("grpc", "fork", 2), ("shared-memory", "spawn", 1)],
    indirect=["connect"],
)
def test_a_data_loader_draws_in_its_workers(connect, context, workers):
    # A client in the tables' own process can go to no worker.
    torch = pytest.importorskip("torch")
    from reverie.adapters.torch import BatchDataset

    client = connect()
    step = rows()
    client.insert_batch("t", step)
    dataset = BatchDataset(functools.partial(client.batches, "t", 8, as_="torch", max_samples=24))
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=context)
    batches = list(loader)
    assert [len(batch.info.key) for batch in batches] == [8] * 3 * workers
    for batch in batches:
        assert torch.equal(batch.data["x"][:, 0], batch.data["deep"]["n"] * 3.0)
    assert client.info().tables["t"].num_samples == 24 * workers


@pytest.mark.parametrize("connect", ["in-process"], indirect=True)
def test_a_forked_worker_of_an_in_process_client_raises_forked_error(connect):
    torch = pytest.importorskip("torch")
    from reverie.adapters.torch import BatchDataset

    client = connect()
    client.insert_batch("t", rows())
    dataset = BatchDataset(functools.partial(client.batches, "t", 8, as_="torch", max_samples=8))
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(reverie.ForkedError, match="spawn"):
        list(loader)
