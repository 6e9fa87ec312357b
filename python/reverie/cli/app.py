"""The commands, put together."""

from __future__ import annotations

import typer

from reverie.cli import demo, info, serve, top

app = typer.Typer(
    name="reverie",
    help="Replay and distributed learning for reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(epilog=demo.EPILOG)(demo.demo)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=info.EPILOG)(info.info)
app.command(epilog=top.EPILOG)(top.top)


@app.callback()
def _keep_subcommands() -> None:
    """Stores, selects and moves experience for reinforcement learning."""
