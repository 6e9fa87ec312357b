"""The commands, put together."""

from __future__ import annotations

import typer

from reverie.cli import checkpoint, info, serve, top
from reverie.cli.common import EPILOG
from reverie.cli.demo import demo
from reverie.cli.eval import evaluate
from reverie.cli.plot import plot
from reverie.cli.train import train

app = typer.Typer(
    name="reverie",
    help="Replay and distributed learning for reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(epilog=EPILOG)(demo)
app.command(epilog=EPILOG)(train)
app.command("eval")(evaluate)
app.command()(plot)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=info.EPILOG)(info.info)
app.command(epilog=top.EPILOG)(top.top)
app.add_typer(checkpoint.app)


@app.callback()
def _keep_subcommands() -> None:
    """Stores, selects and moves experience for reinforcement learning."""
