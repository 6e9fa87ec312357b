"""Makes a table, a JSON file and a plot of times. A figure counts only as a ratio within one run."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
from pathlib import Path
from typing import Any

from .peers import BEFORE

#: The least ratio to an earlier version of this project.
NOT_SLOWER = 0.97


def machine() -> dict[str, Any]:
    """The machine that the benchmark runs on, and the versions of its kernel and Python."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def ratios(peer: list[float], ours: list[float]) -> tuple[float, float, float]:
    """Ratio of medians (peer's time over ours: above 1 we are faster), and its least and most over the rounds."""
    rounds = [a / b for a, b in zip(peer, ours, strict=True)]
    return statistics.median(peer) / statistics.median(ours), min(rounds), max(rounds)


def duration(seconds: float) -> str:
    """Three digits with a unit that suits them."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1_000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def rate(line: dict[str, Any], seconds: float) -> str:
    """Items per second and, where a payload is moved, bytes: of rows of the network only."""
    if line["payload"] == 0:
        return ""
    items = line["items"] / seconds
    moved = "" if line["unit"] == "update" else f", {items * line['payload'] / 1e9:.2f} GB/s"
    return f" ({items:,.0f} items/s{moved})"


def lines(run: dict[str, Any]) -> list[dict[str, Any]]:
    """One line per row and peer, in the order of the run."""
    found = []
    for row in run["rows"]:
        times = row["seconds"]
        if "reverie" not in times:
            continue
        ours = statistics.median(times["reverie"])
        if len(times) == 1:
            line = {"row": row["name"], "unit": row["unit"], "peer": "-", "ours": ours}
            found.append({**line, **{key: row[key] for key in ("transport", "payload", "items")}})
        for peer, theirs in times.items():
            if peer == "reverie":
                continue
            ratio, least, most = ratios(theirs, times["reverie"])
            target = row["targets"].get(peer)
            found.append(
                {
                    "row": row["name"],
                    "unit": row["unit"],
                    "peer": peer,
                    "ours": ours,
                    "theirs": statistics.median(theirs),
                    "ratio": ratio,
                    "least": least,
                    "most": most,
                    "target": target,
                    "reached": None if target is None else ratio >= target,
                    "transport": row["transport"],
                    "payload": row["payload"],
                    "items": row["items"],
                }
            )
    return found


def table(run: dict[str, Any]) -> str:
    """A Markdown table; `ratio` is the peer's median over ours, with the least and most of the rounds."""
    where = run["machine"]
    out = [
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB; {run['suite']}; "
        f"{run['rounds']} rounds of {run['seconds_per_turn']} s",
        "; ".join(f"{peer}: {' '.join(f'{k} {v}' for k, v in of.items())}" for peer, of in run["versions"].items()),
        "",
        "| row | peer | ours | theirs | ratio | rounds | target | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines(run):
        ours = f"{duration(line['ours'])} / {line['unit']}{rate(line, line['ours'])}"
        if line["peer"] == "-":
            out.append(f"| {line['row']} | - | {ours} | - | - | - | - | - |")
            continue
        target = "-" if line["target"] is None else f"x{line['target']:.2g}"
        reached = {None: "-", True: "yes", False: "NO"}[line["reached"]]
        out.append(
            f"| {line['row']} | {line['peer']} | {ours} "
            f"| {duration(line['theirs'])}{rate(line, line['theirs'])} | x{line['ratio']:.2f} "
            f"| {line['least']:.2f} to {line['most']:.2f} | {target} | {reached} |"
        )
    for row in run["memory"]:
        reached = "yes" if max(row["table_bytes"], row["resident_bytes"]) < row["target_bytes"] else "NO"
        out.append(
            f"| {row['name']} | - | {row['table_bytes']:,.0f} B ({row['table_bytes'] / 1e3:.2f} GB for 1 M, "
            f"scaled from {row['steps']:,} steps; resident {row['resident_bytes']:,.0f} B) | - | - | - | "
            f"under {row['target_bytes']:,} B | {reached} |"
        )
    single = {
        (row["peer"], row["transport"]): row["items_per_second"] for row in run["writers"] if row["processes"] == 1
    }
    for row in run["writers"]:
        share = row["items_per_second"] / single.get((row["peer"], row["transport"]), float("nan"))
        wanted = row["peer"] == "reverie" and row["processes"] in (8, 64) and row["transport"] == "auto"
        reached = ("yes" if share >= 0.9 else "NO") if wanted else "-"
        out.append(
            f"| {row['processes']} writer processes of {row['peer']}, {row['transport']}, 400 B | - "
            f"| {row['items_per_second']:,.0f} items/s | - | {share:.2f} of one writer's | - "
            f"| {'0.9' if wanted else '-'} | {reached} |"
        )
    out += [f"| {name} | - | FAILED: {reason} | - | - | - | - | - |" for name, reason in run["failed"].items()]
    if run["imports"]:
        ours, theirs = (run["imports"][name] for name in ("reverie", "numpy"))
        ratio = statistics.median(ours) / statistics.median(theirs)
        out.append(
            f"| import, against numpy's | numpy | {duration(statistics.median(ours))} | "
            f"{duration(statistics.median(theirs))} | {ratio:.2f} times as long | - | at most 1.5 | "
            f"{'yes' if ratio <= 1.5 else 'NO'} |"
        )
        if BEFORE in run["imports"]:
            ratio, least, most = ratios(run["imports"][BEFORE], ours)
            out.append(
                f"| import | {BEFORE} | {duration(statistics.median(ours))} "
                f"| {duration(statistics.median(run['imports'][BEFORE]))} | x{ratio:.2f} "
                f"| {least:.2f} to {most:.2f} | x{NOT_SLOWER} | {'yes' if ratio >= NOT_SLOWER else 'NO'} |"
            )
    return "\n".join(out)


def write(run: dict[str, Any], folder: Path) -> list[Path]:
    """Writes `<date>.json`, `.md` and `.png` into the folder; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = f"{run['suite']}-{BEFORE}" if BEFORE in run["versions"] else run["suite"]
    stem = folder / f"{datetime.datetime.now():%Y-%m-%d-%H%M}-{kind}"
    files = [stem.with_suffix(suffix) for suffix in (".json", ".md", ".png")]
    files[0].write_text(json.dumps(run, indent=1) + "\n")
    files[1].write_text(table(run) + "\n")
    plot(run, files[2])
    if kind == "network":
        files.append(stem.with_name(f"{stem.name}-throughput.png"))
        plot_throughput(run, files[3])
    return files


def plot(run: dict[str, Any], path: Path) -> None:
    """One bar per row and peer: the ratio, its rounds as a whisker, the target as a mark."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [line for line in lines(run) if line["peer"] != "-"][::-1]
    if not shown:
        return
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + 0.32 * len(shown)))
    places = range(len(shown))
    whiskers = [[line["ratio"] - line["least"] for line in shown], [line["most"] - line["ratio"] for line in shown]]
    whiskers = [[max(0.0, value) for value in side] for side in whiskers]
    axes.barh(places, [line["ratio"] for line in shown], xerr=whiskers, color="#4878a8", ecolor="#333333", capsize=2)
    for place, line in zip(places, shown, strict=True):
        if line["target"] is not None:
            axes.plot([line["target"]] * 2, [place - 0.4, place + 0.4], color="#c03030", linewidth=2)
    axes.set_yticks(list(places), [f"{line['row']}  vs {line['peer']}" for line in shown], fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("peer's time over ours (above 1: ours is faster; red: target)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def plot_throughput(run: dict[str, Any], path: Path) -> None:
    """Bytes per second of batches by payload, and items per second by the number of writer processes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves: dict[str, list[tuple[int, float]]] = {}
    for row in run["rows"]:
        if not row["name"].startswith(("same host, batches", "TCP, batches")):
            continue
        way = row["name"].split(",")[0]
        labels = {
            "reverie": f"reverie, {way}",
            "limits": "gather in memory" if way == "same host" else "bare TCP socket",
        }
        for peer, times in row["seconds"].items():
            if peer == "dm-reverb" and way != "same host":
                continue  # its one path is in both rows
            moved = row["items"] * row["payload"] / statistics.median(times) / 1e9
            curves.setdefault(labels.get(peer, peer), []).append((row["payload"], moved))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for label, points in curves.items():
        left.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
    left.set(xscale="log", yscale="log", xlabel="bytes of an item", ylabel="GB/s", title="batches of 64")
    left.legend(fontsize=7)
    writers: dict[str, list[tuple[int, float]]] = {}
    for row in run["writers"]:
        label = f"{row['peer']}, {row['transport']}" if row["peer"] == "reverie" else row["peer"]
        writers.setdefault(label, []).append((row["processes"], row["items_per_second"]))
    for label, points in writers.items():
        right.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
    right.set(
        xscale="log", yscale="log", xlabel="writer processes", ylabel="items/s", title="append + create_item, 400 B"
    )
    if writers:
        right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
