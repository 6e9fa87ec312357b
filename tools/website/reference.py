"""The pages of the API reference: which public name is on which page. tests/docs compares them with the package."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[2] / "python"
INDEX = "reference/index.md"


@dataclass(frozen=True)
class Reference:
    """A page: names of the package, where `module.*` is every name in that module's `__all__`."""

    title: str
    text: str
    names: tuple[str, ...]


PAGES = {
    "reference/server.md": Reference(
        "Server",
        "A server holds tables, in this process or for others. "
        "[Run a server](../guides/run-a-server.md), [secure it](../guides/secure-a-server.md).",
        ("reverie.Server", "reverie.Token", "reverie.ServerTLS", "reverie.ClientTLS", "reverie.tls.Pem"),
    ),
    "reference/table.md": Reference(
        "Table",
        "A table is a bounded set of items with a sampler, a remover and a rate limiter "
        "([concept](../concepts/table.md)).",
        ("reverie.Table", "reverie.extensions.*"),
    ),
    "reference/selectors.md": Reference(
        "Selectors",
        "A selector chooses the next item to draw, or the next to evict ([concept](../concepts/table.md)).",
        ("reverie.selectors.*",),
    ),
    "reference/rate-limiters.md": Reference(
        "Rate limiters",
        "A rate limiter decides which requests wait ([in numbers](../concepts/table.md#limiters-in-numbers)).",
        ("reverie.rate_limiters.*",),
    ),
    "reference/client.md": Reference(
        "Client",
        "A client has every call of a replay buffer: in this process, on a server, or on several.",
        (
            "reverie.Client",
            "reverie.client.Transport",
            "reverie.info.*",
        ),
    ),
    "reference/writers.md": Reference(
        "Writers",
        "A client makes writers; each follows one episode at a time ([concept](../concepts/append.md)).",
        (
            "reverie.TransitionWriter",
            "reverie.SequenceWriter",
            "reverie.EpisodeWriter",
            "reverie.VectorWriter",
            "reverie.StructuredWriter",
            "reverie.TrajectoryWriter",
            "reverie.TrajectoryColumn",
            "reverie.Writer",
            "reverie.writers.Autoreset",
            "reverie.writers.Head",
            "reverie.writers.Tail",
        ),
    ),
    "reference/structured.md": Reference(
        "Patterns of items",
        "Descriptions of items for `client.structured_writer` and `PatternDataset` "
        "([concept](../concepts/append.md#items-by-patterns)).",
        ("reverie.structured.*",),
    ),
    "reference/batches.md": Reference(
        "Samples and batches",
        "What calls of a client return ([sample](../concepts/sample.md), [batch](../concepts/batch.md)).",
        (
            "reverie.types.*",
            "reverie.adapters.*",
        ),
    ),
    "reference/datasets.md": Reference(
        "Data sets",
        "Batches and trajectories as iterables.",
        ("reverie.datasets.Annealed", "reverie.datasets.Batches", "reverie.PatternDataset"),
    ),
    "reference/specs.md": Reference("Signatures", "The columns of a table, by dtype and shape.", ("reverie.specs.*",)),
    "reference/sharding.md": Reference(
        "Several servers",
        "One replay buffer over several servers ([guide](../guides/shards.md)).",
        ("reverie.sharding.*",),
    ),
    "reference/checkpointers.md": Reference(
        "Checkpointers and the journal",
        "Folders in which a server saves its tables ([guide](../guides/checkpoints.md)).",
        ("reverie.checkpointers.*", "reverie.Journal"),
    ),
    "reference/parameters.md": Reference(
        "Parameters",
        "Newest weights from a learner to its actors ([Ape-X by hand](../guides/ape-x-by-hand.md)).",
        ("reverie.parameters.*", "reverie.parameters.ray.*"),
    ),
    "reference/errors.md": Reference(
        "Errors", "Every exception and warning of the package, with its attributes.", ("reverie.errors.*",)
    ),
    "reference/policies.md": Reference(
        "Policies",
        "Trained policies in programs of your own ([guide](../guides/use-a-policy.md)).",
        ("reverie.load_policy", "reverie.agents.policies.*"),
    ),
    "reference/runners.md": Reference(
        "Runners",
        "Training runs from Python ([guide](../guides/training.md)).",
        (
            "reverie.runners.train",
            "reverie.runners.*",
            "reverie.pages.PageServer",
            "reverie.runners.checkpoints.ChangedSettingsError",
            "reverie.runners.checkpoints.RunExistsError",
            "reverie.runners.checkpoints.RunInUseError",
        ),
    ),
    "reference/agents.md": Reference(
        "Agents",
        "The parts of an agent ([an agent of your own](../guides/an-agent-of-your-own.md)).",
        (
            "reverie.agents.*",
            "reverie.agents.agent.*",
            "reverie.agents.core.*",
            "reverie.agents.env_actor.*",
            "reverie.agents.replay_actor.*",
            "reverie.agents.discrete.*",
            "reverie.agents.draws.*",
            "reverie.agents.flat.*",
            "reverie.agents.layers.*",
            "reverie.agents.learning.*",
            "reverie.agents.optimizers.*",
            "reverie.agents.run_settings.*",
        ),
    ),
    "reference/stable-baselines3.md": Reference(
        "Stable-Baselines3",
        "Replay buffers for Stable-Baselines3 ([guide](../guides/use-with-stable-baselines3.md)).",
        ("reverie.integrations.stable_baselines3.*",),
    ),
    "reference/torchrl.md": Reference(
        "TorchRL",
        "Replay buffers for TorchRL ([guide](../guides/use-with-torchrl.md)).",
        ("reverie.integrations.torchrl.*",),
    ),
    "reference/rllib.md": Reference(
        "RLlib",
        "A replay buffer for RLlib's DQN and SAC ([guide](../guides/use-with-rllib.md)).",
        ("reverie.integrations.rllib.*",),
    ),
    "reference/tianshou.md": Reference(
        "tianshou",
        "Replay buffers for the off-policy algorithms of tianshou ([guide](../guides/use-with-tianshou.md)).",
        ("reverie.integrations.tianshou.*",),
    ),
    "reference/stored-data.md": Reference(
        "Stored data",
        "Data sets of Parquet, Minari and LeRobot into tables and out of them ([guide](../guides/data-sets.md)).",
        ("reverie.integrations.datasets.*",),
    ),
    "reference/testing.md": Reference(
        "Testing", "Servers and Hypothesis strategies for tests of your own code.", ("reverie.testing.*",)
    ),
    "reference/dm-reverb.md": Reference(
        "Names of dm-reverb",
        "Classes that exist so that code written for dm-reverb runs ([guide](../guides/from-dm-reverb.md)).",
        ("reverie.TFClient", "reverie.TimestepDataset", "reverie.TrajectoryDataset"),
    ),
}
#: Public names that are another public name: of a class, or of a module with its names.
SAME = {
    "reverie.ReverbError": "reverie.ReplayError",
    "reverie.ShardedClient": "reverie.Client",
    "reverie.item_selectors": "reverie.selectors",
    "reverie.pattern_dataset": "reverie.PatternDataset",
    "reverie.platform": "reverie.checkpointers",
    "reverie.replay_sample": "reverie.types",
    "reverie.reverb_types": "reverie.types",
    "reverie.structured_writer": "reverie.structured",
    "reverie.timestep_dataset": "reverie.TimestepDataset",
    "reverie.train": "reverie.runners.train",
    "reverie.trajectory_writer": "reverie.TrajectoryWriter",
}


def names(place: str) -> list[str]:
    """The names on a page, in its order."""
    found: list[str] = []
    for name in PAGES[place].names:
        module = name.removesuffix(".*")
        found += [name] if module == name else [_shortest(module, inner) for inner in public(module)]
    return list(dict.fromkeys(name for name in found if name not in SAME))


def _shortest(module: str, name: str) -> str:
    """The name as programs write it: `reverie.Batch` for `reverie.types.Batch`."""
    return f"reverie.{name}" if name in public("reverie") else f"{module}.{name}"


@cache
def public(module: str) -> list[str]:
    """`__all__` of a module, read from its source; where there is none, its classes and functions.

    Raises:
        LookupError: there is no such module.
    """
    file = PYTHON.joinpath(*module.split("."))
    source = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    if not source.is_file():
        raise LookupError(f"the reference names {module}, and there is no {source}")
    body = ast.parse(source.read_text()).body
    for node in body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("_")]
    found = [node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    return [name for name in found if not name.startswith("_")]


def pages() -> dict[str, str]:
    """The Markdown of every page, by its place on the site."""
    return {INDEX: _index(), **{place: _page(place) for place in PAGES}}


def _page(place: str) -> str:
    from website import api  # which needs griffe

    page = PAGES[place]
    head = [f"# {page.title}", page.text, "```{py:currentmodule} reverie\n```"]
    return "\n\n".join([*head, *(api.described(name) for name in names(place))])


def _index() -> str:
    """The names of `import reverie`, each with its page, and the modules."""
    home = {name: place for place in PAGES for name in names(place)}
    modules = {name.removesuffix(".*"): place for place in PAGES for name in PAGES[place].names if name.endswith(".*")}
    rows = []
    for short in public("reverie"):
        name = f"reverie.{short}"
        same = SAME.get(name, name)
        place = modules.get(same) or home.get(same)
        if place is None:
            raise LookupError(f"no page of the reference has {name}: add it to PAGES in {Path(__file__).name}")
        link = f"{{py:obj}}`{name} <{same}>`" if same in home else f"[`{name}`]({place.removeprefix('reference/')})"
        other = f", which is `{same}`" if same != name else ""
        rows.append(f"| {link}{other} | [{PAGES[place].title}]({place.removeprefix('reference/')}) |")
    text = "Every public name of `import reverie`. Signatures and texts are those of the code and of its stubs."
    return "\n".join(["# Reference", "", text, "", "| name | page |", "|---|---|", *rows, ""])
