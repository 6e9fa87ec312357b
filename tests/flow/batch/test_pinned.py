"""Tensors copied to a GPU through page-locked memory, with a fake GPU."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def cuda(monkeypatch):
    """A CUDA of the CPU's memory: what was pinned, and what was sent how, in order."""
    steps = []
    send = torch.Tensor.to

    def pin_memory(tensor):
        copy = tensor.clone()
        steps.append(("pinned", tensor.data_ptr(), copy.data_ptr()))
        return copy

    def to(tensor, device, *, non_blocking=False):
        steps.append(("sent", tensor.data_ptr(), str(device), non_blocking))
        return send(tensor.clone(), "cpu")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "to", to)
    return steps


@pytest.fixture
def filled(connect):
    client = connect()
    client.insert_batch("t", {"x": np.arange(8.0), "s": np.array(list("abcdefgh"))})
    return client


def batch_of(client, **options):
    with client.batches("t", 4, as_="torch", prefetch=0, **options) as batches:
        return next(batches)


@pytest.mark.parametrize("pinned", [None, True])
def test_a_column_is_copied_once_into_pinned_memory_and_sent_from_there_without_waiting(filled, cuda, pinned):
    batch = batch_of(filled, device="cuda", pinned=pinned)
    [(_, source, copy), (_, sent, device, non_blocking)] = cuda
    assert source != copy == sent
    assert (device, non_blocking) == ("cuda", True)
    # Keys, which go back into the replay, and text are not copied.
    assert isinstance(batch.info.key, np.ndarray)
    assert isinstance(batch.data["s"], np.ndarray)
    letters = [ord(letter) - ord("a") for letter in batch.data["s"]]
    assert batch.data["x"].tolist() == letters


def test_a_copy_that_is_not_pinned_is_waited_for(filled, cuda):
    batch_of(filled, device="cuda", pinned=False)
    assert [(step, *rest[1:]) for step, *rest in cuda] == [("sent", "cuda", False)]


def test_cpu_tensors_are_pinned_only_on_request(filled, cuda):
    batch_of(filled)
    assert cuda == []
    batch_of(filled, pinned=True)
    assert [step for step, *_ in cuda] == ["pinned"]


@pytest.mark.parametrize(("options", "word"), [({"device": "cuda"}, "'cuda'"), ({"pinned": True}, "pinned=True")])
@pytest.mark.parametrize("as_", ["torch", "tensordict"])
def test_options_that_need_cuda_are_refused_without_it(connect, monkeypatch, as_, options, word):
    if as_ == "tensordict":
        pytest.importorskip("tensordict")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=f"{word}.* needs CUDA"):
        connect().batches("t", 1, as_=as_, **options)


def test_a_thread_sends_on_a_stream_that_the_reader_waits_for_and_keeps_the_batch_in_pinned_memory(
    filled, cuda, monkeypatch
):
    def on(stream):
        cuda.append(("on", stream.name))
        return contextlib.nullcontext()

    def waits(event):
        cuda.append(("waits", event))

    made = SimpleNamespace(name="sending", record_event=lambda: cuda.append(("recorded",)) or "event")
    reading = SimpleNamespace(wait_event=waits)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: made)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: reading)
    kept_for = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: kept_for.append(stream))
    with filled.batches("t", 4, as_="torch", device="cuda", prefetch=1, max_samples=8) as batches:
        first = next(batches)
        sent = cuda[: cuda.index(("recorded",))]
        assert [step for step, *_ in sent] == ["on", "pinned", "sent"]
        (_, source, copy), (_, where, device, non_blocking) = sent[1:]
        assert source != copy == where
        assert (device, non_blocking) == ("cuda:3", True)
        assert ("waits", "event") in cuda
        assert kept_for == [reading]
        assert isinstance(first.data["s"], np.ndarray)
        assert first.data["x"].tolist() == [ord(letter) - ord("a") for letter in first.data["s"]]
    [left] = batches.leftover
    assert isinstance(left.data["x"], np.ndarray)
    assert left.data["x"].tolist() == [ord(letter) - ord("a") for letter in left.data["s"]]
