"""The picture of a run: fleet, buffer, reward and interruptions over one time axis."""

from pathlib import Path
from typing import Any

from scaler.demo.moments import Moment, Run

NOTICED, UNNOTICED = "#d98200", "#c0182b"


def draw(run: Run, file: Path) -> None:
    """Write a PNG or SVG, by the file's suffix.

    Raises:
        ImportError: matplotlib is not installed (`pip install headrace[plot]`).
        OSError: the file cannot be written.
        ValueError: the suffix names no picture format.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(11, 8.5), sharex=True, height_ratios=(3, 2, 2), layout="constrained")
    try:
        _fleet(axes[0], run)
        _buffer(axes[1], run)
        _reward(axes[2], run)
        for axis in axes:
            _interruptions(axis, run)
            axis.grid(alpha=0.25)
            axis.spines[["top", "right"]].set_visible(False)
        axes[0].set_title(run.title, loc="left", fontsize=11)
        axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=8, fontsize=8, frameon=False)
        axes[2].set_xlabel("seconds since start")
        figure.savefig(file, dpi=110)
    finally:
        plt.close(figure)


def _fleet(axis: Any, run: Run) -> None:
    times = [moment.at_s for moment in run.moments]
    layers = [
        ("ready", "#2b7a4b", [moment.ready for moment in run.moments]),
        ("starting", "#9fd0ae", [moment.starting for moment in run.moments]),
        ("draining", "#d9d9d9", [moment.draining for moment in run.moments]),
    ]
    axis.stackplot(
        times,
        [values for _, _, values in layers],
        labels=[name for name, _, _ in layers],
        colors=[colour for _, colour, _ in layers],
        step="post",
    )
    _step(axis, run.moments, "desired", label="desired", color="#1b3a8a", linewidth=1.6)
    _step(axis, run.moments, "capacity", label="capacity offered", color="#777777", linewidth=1.0, linestyle=":")
    for bound, name in ((run.min_replicas, "floor"), (run.max_replicas, "ceiling")):
        axis.axhline(bound, color="#1b3a8a", alpha=0.3, linewidth=0.8)
        axis.annotate(name, (1.0, bound), xycoords=("axes fraction", "data"), fontsize=7, va="center")
    axis.set_ylabel("replicas")
    axis.set_ylim(0, max(run.max_replicas, *(moment.capacity or 0 for moment in run.moments), 1) + 0.8)


def _step(axis: Any, moments: tuple[Moment, ...], name: str, **style: Any) -> None:
    points = [(moment.at_s, value) for moment in moments if (value := getattr(moment, name)) is not None]
    if points:
        axis.step(*zip(*points, strict=True), where="post", **style)


def _buffer(axis: Any, run: Run) -> None:
    _step(axis, run.moments, "buffered_samples", color="#6a3d9a", linewidth=1.5)
    batches = [moment.batch_samples for moment in run.moments if moment.batch_samples]
    if batches:
        axis.axhline(batches[-1], color="#6a3d9a", alpha=0.35, linewidth=0.8)
        axis.annotate("one batch", (1.0, batches[-1]), xycoords=("axes fraction", "data"), fontsize=7, va="center")
    axis.set_ylabel("buffer depth\n(samples)")
    axis.set_ylim(bottom=0)


def _reward(axis: Any, run: Run) -> None:
    axis.plot(
        [update.at_s for update in run.updates], [update.reward for update in run.updates], color="#222222", marker="."
    )
    axis.set_ylabel("mean reward\nof an update")
    axis.set_ylim(0, 1)


def _interruptions(axis: Any, run: Run) -> None:
    seen: set[bool] = set()
    for interruption in run.interruptions:
        kind = "interruption with notice" if interruption.noticed else "interruption without notice"
        label = None if interruption.noticed in seen else kind
        seen.add(interruption.noticed)
        colour = NOTICED if interruption.noticed else UNNOTICED
        axis.axvline(interruption.at_s, color=colour, alpha=0.55, linewidth=0.9, linestyle="--", label=label)
