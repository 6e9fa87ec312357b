"""The devices of a run: what its roles compute on, and refusals before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from reverie._picklable import Picklable
from reverie.agents.agent import Agent
from reverie.agents.core import RunSettings
from reverie.agents.error_places import warn
from reverie.agents.run_settings import AUTO
from reverie.runners.planning.topology import RunnerName, Topology


class DeviceError(Picklable, ValueError):
    """The run's device is missing, or its agent does not compute on it. `.device`"""

    def __init__(self, device: str, reason: str) -> None:
        self.device = device
        super().__init__(f"device {device!r} {reason}")


def with_device(agent: Agent, run: RunSettings, runner: RunnerName) -> RunSettings:
    """The settings with a device for "auto". Raises `DeviceError` on Ray, whose machines are not known here."""
    if run.device != AUTO:
        return run
    if runner == "ray":
        raise DeviceError(AUTO, "checks this machine, and Ray places roles on its cluster: choose cpu or cuda")
    able = "cuda" in agent.devices and torch.cuda.is_available()
    return replace(run, device="cuda" if able else "cpu")


def require_device(agent: Agent, run: RunSettings, runner: RunnerName) -> None:
    """Raise `DeviceError` if the agent does not compute on the run's devices, or this machine does not have them."""
    if runner == "ray" and run.actor_device is not None:
        raise DeviceError(
            run.actor_device,
            "is the run's actor_device, and on Ray policies compute on the share gpus_per_actor of a GPU, or on the CPU"
            " where that is 0: leave actor_device out",
        )
    _require_one(agent, run, run.device, runner)
    if run.policy_device != run.device:
        _require_one(agent, run, run.policy_device, runner)


def _require_one(agent: Agent, run: RunSettings, device: str, runner: RunnerName) -> None:
    kind, _, number = device.partition(":")
    if runner == "ray" and number:
        raise DeviceError(
            device, 'names a GPU of this machine, and Ray chooses the GPUs of its roles: set device to "cuda"'
        )
    if runner != "ray" and run.gpus_per_actor:
        raise DeviceError(
            device,
            f"is shared by all roles with the runner {runner!r}, and gpus_per_actor is {run.gpus_per_actor}: leave it"
            " out, or use the runner 'ray'",
        )
    able = agent.devices
    if kind not in able:
        raise DeviceError(device, f"is not supported by {agent.name}, which runs on {', '.join(able)}")
    if kind == "cuda" and runner != "ray":  # on Ray it is the cluster's GPUs that count
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(number or 0) >= there:
            raise DeviceError(
                device, f"is missing: PyTorch {torch.__version__} finds {there} CUDA devices; set device=cpu"
            )


def warn_of_precision(config: Any, run: RunSettings, runner: RunnerName) -> None:
    """Warn of bfloat16 on a processor without instructions for it, where Pong's updates took eight times as long.

    Not on Ray, where roles run on other machines.
    """
    slow = [work for work, device in (("updates", run.device), ("actions", run.policy_device)) if device == "cpu"]
    if runner == "ray" or not slow or getattr(config, "precision", "float32") != "bfloat16" or has_bfloat16():
        return
    warn(
        f"precision is 'bfloat16', and this processor has no instructions for it: {' and '.join(slow)} take several"
        " times as long as with precision=float32"
    )


BFLOAT16 = ("avx512_bf16", "amx_bf16", "avx_ne_convert", "avx10_1", "avx10_2")
"""Instructions of x86, any of which converts or multiplies numbers of bfloat16."""


def has_bfloat16() -> bool:
    """Whether this machine's processor has instructions for bfloat16; true where PyTorch does not report it."""
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    known = [capabilities[name] for name in BFLOAT16 if name in capabilities]
    return any(known) or not known


def require_gpus(topology: Topology, there: float, free: float) -> None:
    """Raise `DeviceError` at once if the run needs more GPUs than are free, for which Ray would only wait."""
    places = [place for place in topology.places if place.num_gpus]
    wanted = sum(place.count * place.num_gpus for place in places)
    if wanted > free:
        roles = ", ".join(f"{place.num_gpus:g} for each {place.role} of {place.count}" for place in places)
        raise DeviceError(
            topology.run.device,
            f"takes {wanted:g} GPUs ({roles}), and the Ray cluster has {there:g}, {free:g} of them free: add nodes with"
            " GPUs, lower gpus_per_actor, or set device=cpu",
        )


def missing_resource(asks: Mapping[str, float], there: Mapping[str, float], free: Mapping[str, float]) -> str:
    """The first resource that a cluster lacks for a role that requests `asks`; empty if it lacks nothing."""
    for resource, wanted in asks.items():
        if wanted > free.get(resource, 0.0):
            has = f"{there.get(resource, 0.0):g}, {free.get(resource, 0.0):g} of them free"
            return f"asks for {wanted:g} {resource}, and the Ray cluster has {has}"
    return ""


def networks_on(device: str) -> AbstractContextManager[Any]:
    """A context in which networks are made on `device`."""
    return nullcontext() if device == "cpu" else torch.device(device)
