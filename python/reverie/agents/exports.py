"""Trained policies as files that other programs run: ONNX, TorchScript and `torch.export`.

Each file computes `action` of `observations` `[N, ...]`, for any N, and for discrete actions also their `scores`
`[N, num_actions]`. A policy with a state also takes `state` `[N, S]`, zeros at the beginning of an episode, and returns
`next_state`. A file is loaded again and compared with PyTorch before it gets its name.
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
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from reverie import _checks
from reverie.agents.core import RecurrentPolicy
from reverie.agents.observations import ObservationLeaf, is_mixed
from reverie.agents.policies import TrainedPolicy
from reverie.agents.policy_files import KEY, describe, replacing
from reverie.agents.policy_records import PolicyError
from reverie.agents.rounding import error_bounds

INPUT, ACTION, SCORES = "observations", "action", "scores"
STATE, NEXT_STATE = "state", "next_state"
CHECKED_BATCHES = (1, 2, 7)
"""Sizes of the batches that a file is checked with: one of them is not the size that it was made with."""

Outputs = tuple[NDArray[Any], ...]


class ExportedChoice(nn.Module):
    """A policy's greedy choice as a module: `(action,)`, or `(action, scores)` for discrete actions; then its state."""

    def __init__(self, policy: TrainedPolicy) -> None:
        super().__init__()
        self.network = policy.module
        self._forward, self._discrete = _forward(policy), policy.spec.num_actions is not None
        self._choose = getattr(policy.policy, "choose", _argmax)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Actions `[N]` int64 or `[N, A]`, scores `[N, num_actions]` of discrete ones, and the next state `[N, S]`."""
        values, *state = self._forward(*inputs)
        return (self._choose(values), values, *state) if self._discrete else (values, *state)


def _forward(policy: TrainedPolicy) -> Callable[..., tuple[Tensor, ...]]:
    """The greedy choice of inputs, and the next state of a policy that has one."""
    if policy.recurrent:
        stateful = cast("RecurrentPolicy", policy.policy)
        return stateful.forward_with
    return lambda observations: (policy.policy.forward(observations),)


def _names(policy: TrainedPolicy) -> tuple[list[str], list[str]]:
    """The names of a file's inputs and outputs."""
    inputs, outputs = [INPUT], [ACTION, SCORES][: 2 if policy.spec.num_actions is not None else 1]
    return ([*inputs, STATE], [*outputs, NEXT_STATE]) if policy.recurrent else (inputs, outputs)


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
    inputs, outputs = _names(policy)
    with replacing(where := _checks.path("path", path)) as draft:
        with _quiet():
            program = torch.onnx.export(
                choice,
                _inputs(policy, 3),
                input_names=inputs,
                output_names=outputs,
                dynamic_shapes=_any_size(policy),
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        model = program.model_proto
        onnx.helper.set_model_props(model, {KEY: describe(policy.record)})
        onnx.checker.check_model(model)
        draft.write_bytes(model.SerializeToString())
        return _checked(policy, where, _onnx_runner(draft))


def to_torchscript(policy: TrainedPolicy, path: Path | str) -> float:
    """Write a TorchScript file for `torch.jit.load`, checked. Returns the largest difference from PyTorch.

    Raises `PolicyError` if the file does not agree with PyTorch.
    """
    with replacing(where := _checks.path("path", path)) as draft:
        with _quiet():
            traced = torch.jit.trace(_choice(policy), _inputs(policy, 3))  # type: ignore[no-untyped-call]
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
            program = torch.export.export(_choice(policy), _inputs(policy, 3), dynamic_shapes=_any_size(policy))
            packed = io.BytesIO()  # a path would need the suffix .pt2
            torch.export.save(program, packed)
            draft.write_bytes(packed.getvalue())
            loaded = torch.export.load(io.BytesIO(draft.read_bytes())).module()
        return _checked(policy, where, _torch_runner(loaded))


def _choice(policy: TrainedPolicy) -> ExportedChoice:
    """A copy with memory of its own for each parameter: those of the policy are views of one vector."""
    own = copy.deepcopy(policy)
    for parameter in own.module.parameters():
        parameter.data = parameter.data.contiguous().clone()
    return ExportedChoice(own).eval()


def _any_size(policy: TrainedPolicy) -> tuple[Any, ...]:
    """The shapes of the inputs `(*inputs)` of an `ExportedChoice`: their first axis is any N, the same in all."""
    return (tuple({0: batch} for batch in [torch.export.Dim("N")] * len(_names(policy)[0])),)


def _inputs(policy: TrainedPolicy, count: int) -> tuple[Tensor, ...]:
    """Random observations `[count, ...]`, and states `[count, S]` of a policy that has them."""
    observations = _observations(policy, count)
    if not policy.recurrent:
        return (observations,)
    states = np.random.default_rng(count).uniform(-1, 1, policy.initial_state(count).shape)
    return observations, torch.from_numpy(states.astype(np.float32))


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


def _random(rng: np.random.Generator, shape: tuple[int, ...], leaf: ObservationLeaf) -> NDArray[Any]:
    dtype = np.dtype(leaf.dtype)
    if leaf.kind == "category":
        return rng.integers(0, np.broadcast_to(leaf.sizes, shape), dtype=np.int64).astype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0, min(255, np.iinfo(dtype).max), shape, endpoint=True).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _onnx_runner(path: Path) -> Callable[..., Outputs]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return lambda *inputs: tuple(session.run(None, {k: one.numpy() for k, one in zip(names, inputs, strict=True)}))


def _torch_runner(module: Any) -> Callable[..., Outputs]:
    @torch.inference_mode()
    def run(*inputs: Tensor) -> Outputs:
        return tuple(one.numpy() for one in module(*inputs))

    return run


def _checked(policy: TrainedPolicy, path: Path, run: Callable[..., Outputs]) -> float:
    """Compare a file with PyTorch on batches of several sizes. Returns the largest difference; raises `PolicyError`."""
    largest, compute = 0.0, _forward(policy)
    for count in CHECKED_BATCHES:
        inputs = _inputs(policy, count)
        outputs = run(*inputs)
        action, results = outputs[0], outputs[1:] if policy.spec.num_actions is not None else outputs
        with torch.inference_mode():
            expected = [one.numpy() for one in compute(*inputs)]
        bounds = error_bounds(compute, list(policy.module.parameters()), inputs)
        for found, values, bound in zip(results, expected, bounds, strict=True):
            largest = max(largest, _difference(path, found, values, bound.numpy()))
        choose = getattr(policy.policy, "choose", _argmax)
        if policy.spec.num_actions is not None:
            scores = torch.from_numpy(results[0].copy())
            if not (action == choose(scores).numpy()).all():
                raise PolicyError(path, "is not written: its actions are not those of its greatest scores")
    return largest


def _difference(path: Path, found: NDArray[Any], values: NDArray[Any], bound: NDArray[Any]) -> float:
    """The largest difference of a file's results from PyTorch's. Raises `PolicyError` if it is above the bound."""
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
    return float(difference.max())


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
