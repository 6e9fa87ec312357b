"""Trained policies as files that other programs run: ONNX, TorchScript and `torch.export`.

Each file computes `action` of `observations` `[N, ...]`, for any N, and for discrete actions also their `scores`
`[N, num_actions]`. It is loaded again and compared with PyTorch before it gets its name.
"""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie import _checks
from reverie.agents.observations import Leaf, is_mixed
from reverie.agents.policies import PolicyError, TrainedPolicy
from reverie.agents.policy_files import KEY, describe, replacing
from reverie.agents.rounding import error_bound

INPUT, ACTION, SCORES = "observations", "action", "scores"
CHECKED_BATCHES = (1, 2, 7)
"""Sizes of the batches that a file is checked with: one of them is not the size that it was made with."""

Outputs = tuple[NDArray[Any], ...]


class Choice(nn.Module):
    """A policy's greedy choice as a module: `(action,)`, or `(action, scores)` for discrete actions."""

    def __init__(self, policy: TrainedPolicy) -> None:
        super().__init__()
        self.network = policy.module
        self._forward, self._discrete = policy.policy.forward, policy.agent.actions == "discrete"
        self._choose = getattr(policy.policy, "choose", _argmax)

    def forward(self, observations: Tensor) -> tuple[Tensor, ...]:
        """Actions `[N]` int64 or `[N, A]`, and scores `[N, num_actions]` of discrete ones."""
        values = self._forward(observations)
        return (self._choose(values), values) if self._discrete else (values,)


def _argmax(scores: Tensor) -> Tensor:
    return scores.argmax(dim=1)


def to_onnx(policy: TrainedPolicy, path: Path | str) -> float:
    """Write an ONNX file, checked by onnxruntime. Returns the largest difference from PyTorch.

    Its metadata `reverie.policy` describe the policy as a `.safetensors` file's do. Raises `PolicyError` if the file
    does not agree with PyTorch, and ImportError without `reverie[onnx]`.
    """
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise ImportError(f'an ONNX file needs {", ".join(missing)}: pip install "reverie[onnx]"')
    import onnx

    choice = _choice(policy)
    names = [ACTION, SCORES][: 2 if policy.agent.actions == "discrete" else 1]
    with replacing(where := _checks.path("path", path)) as draft:
        with _quiet():
            program = torch.onnx.export(
                choice,
                (_observations(policy, 3),),
                input_names=[INPUT],
                output_names=names,
                dynamic_shapes=({0: torch.export.Dim("N")},),
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        model = program.model_proto
        onnx.helper.set_model_props(model, {KEY: describe(policy)})
        onnx.checker.check_model(model)
        draft.write_bytes(model.SerializeToString())
        return _checked(policy, where, _onnx_runner(draft))


def to_torchscript(policy: TrainedPolicy, path: Path | str) -> float:
    """Write a TorchScript file for `torch.jit.load`, checked. Returns the largest difference from PyTorch.

    Raises `PolicyError` if the file does not agree with PyTorch.
    """
    with replacing(where := _checks.path("path", path)) as draft:
        with _quiet():
            traced = torch.jit.trace(_choice(policy), _observations(policy, 3))  # type: ignore[no-untyped-call]
            packed = io.BytesIO()  # a path would need a suffix
            torch.jit.save(traced, packed)
            draft.write_bytes(packed.getvalue())
            loaded = torch.jit.load(io.BytesIO(draft.read_bytes()))  # type: ignore[no-untyped-call]
        return _checked(policy, where, _torch_runner(loaded))


def to_exported_program(policy: TrainedPolicy, path: Path | str) -> float:
    """Write a program of `torch.export` for `torch.export.load`, checked. Returns the largest difference from PyTorch.

    Raises `PolicyError` if the file does not agree with PyTorch.
    """
    with replacing(where := _checks.path("path", path)) as draft:
        with _quiet():
            dynamic = ({0: torch.export.Dim("N")},)
            program = torch.export.export(_choice(policy), (_observations(policy, 3),), dynamic_shapes=dynamic)
            packed = io.BytesIO()  # a path would need the suffix .pt2
            torch.export.save(program, packed)
            draft.write_bytes(packed.getvalue())
            loaded = torch.export.load(io.BytesIO(draft.read_bytes())).module()
        return _checked(policy, where, _torch_runner(loaded))


def _choice(policy: TrainedPolicy) -> Choice:
    """A copy with memory of its own for each parameter: those of the policy are views of one vector."""
    own = copy.deepcopy(policy)
    for parameter in own.module.parameters():
        parameter.data = parameter.data.contiguous().clone()
    return Choice(own).eval()


def _observations(policy: TrainedPolicy, count: int) -> Tensor:
    """Random observations `[count, ...]`: integers over their whole range, at most 8 bits of it, or normal numbers.

    Leaves of several dtypes are numbers of float32, one leaf after the other, since ONNX has no view of bytes.
    """
    rng, spec = np.random.default_rng(count), policy.spec
    lead = (count,) if spec.frame_stack is None else (count, spec.frame_stack)
    parts = [_random(rng, (*lead, leaf.count), leaf) for leaf in spec.parts]
    if is_mixed(spec.parts):
        return torch.from_numpy(np.concatenate([part.astype(np.float32) for part in parts], axis=-1))
    return torch.from_numpy(np.concatenate(parts, axis=-1).reshape(count, *spec.obs_shape))


def _random(rng: np.random.Generator, shape: tuple[int, ...], leaf: Leaf) -> NDArray[Any]:
    dtype = np.dtype(leaf.dtype)
    if leaf.kind == "category":
        return rng.integers(0, np.broadcast_to(leaf.sizes, shape), dtype=np.int64).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, min(255, np.iinfo(dtype).max), shape, endpoint=True).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _onnx_runner(path: Path) -> Callable[[Tensor], Outputs]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda observations: tuple(session.run(None, {INPUT: observations.numpy()}))


def _torch_runner(module: Any) -> Callable[[Tensor], Outputs]:
    @torch.inference_mode()
    def run(observations: Tensor) -> Outputs:
        return tuple(one.numpy() for one in module(observations))

    return run


def _checked(policy: TrainedPolicy, path: Path, run: Callable[[Tensor], Outputs]) -> float:
    """Compare a file with PyTorch on batches of several sizes. Returns the largest difference; raises `PolicyError`."""
    largest = 0.0
    for count in CHECKED_BATCHES:
        observations = _observations(policy, count)
        action, *scores = run(observations)
        with torch.inference_mode():
            values = policy.policy.forward(observations).numpy()
        bound = error_bound(policy.policy.forward, list(policy.module.parameters()), observations).numpy()
        found = scores[0] if scores else action
        if found.shape != values.shape:
            raise PolicyError(path, f"is not written: it returns {found.shape} where PyTorch returns {values.shape}")
        difference = np.abs(found - values)
        if not (difference <= bound).all():  # NaN is a difference, too
            worst = np.unravel_index(np.argmax(np.where(np.isnan(difference), np.inf, difference - bound)), bound.shape)
            raise PolicyError(
                path,
                f"is not written: it differs from PyTorch by {difference[worst]:.3g}, and rounding by at most"
                f" {bound[worst]:.3g}",
            )
        choose = getattr(policy.policy, "choose", _argmax)
        if scores and not (action == choose(torch.from_numpy(found.copy())).numpy()).all():
            raise PolicyError(path, "is not written: its actions are not those of its greatest scores")
        largest = max(largest, float(difference.max()))
    return largest


@contextmanager
def _quiet() -> Iterator[None]:
    """A context without what exporters print, log and warn about their own versions."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
