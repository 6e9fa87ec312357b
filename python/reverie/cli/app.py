"""The Typer application with all commands."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from reverie.cli import bench, checkpoint, data, export, info, search, serve, top
from reverie.cli.common import EPILOG
from reverie.cli.demo import demo
from reverie.cli.eval import evaluate
from reverie.cli.plot import plot
from reverie.cli.train import train
from reverie.cli.train_flags import AgentCommand, TrainCommand

app = typer.Typer(
    name="reverie",
    help="Replay buffers and distributed training for reinforcement learning.",
    epilog=(
        "Start with one of these; each has its own --help:\n\n"
        "- `reverie demo`: trains an agent in a minute\n"
        "- `reverie train apex-dqn --env CartPole-v1`, then `reverie plot runs/*`\n"
        "- `reverie serve --port 8000`: a replay buffer for your programs; connect with"
        ' `reverie.Client("127.0.0.1:8000")`'
    ),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command(epilog=EPILOG)(demo)
app.command(epilog=EPILOG, cls=TrainCommand)(train)
app.command(epilog=search.EPILOG, cls=AgentCommand)(search.search)
app.command("eval")(evaluate)
app.command(epilog=export.EPILOG)(export.export)
app.command()(plot)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=info.EPILOG)(info.info)
app.command(epilog=top.EPILOG)(top.top)
app.command(epilog=bench.EPILOG)(bench.bench)
app.add_typer(checkpoint.app)
app.add_typer(data.app)


def _version(asked: bool) -> None:
    if asked:
        print(f"reverie {version('reverie')}")
        raise typer.Exit


@app.callback()
def _common(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
