#!/usr/bin/env python3
"""The plots of the training bench: memory over time of each arm, and one step's timeline.

Both are drawn from the JSON that the bench writes beside them; run as a program, this draws them once more:
``tools/bench/plots.py build/reports/train-121M.json FOLDER``.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from svg import Drawing, step_of_scale

LEFT, TOP, BOTTOM, GAP = 56, 64, 44, 14
PANEL_HEIGHT = 200
WIDTH = 860
LANE = 58
Samples = list[tuple[float, float]]


def kind_of(arm: str) -> str:
    return {"tierd": "ours", "DeepSpeed": "peer"}.get(arm.split(" ")[0], "plain")


def memory_over_time(trace: dict[str, Any]) -> str:
    """A panel for each arm, over its own time, all with one scale of bytes."""
    arms: dict[str, Any] = trace["arms"]
    largest = max(size for arm in arms.values() for _, size in arm["memory"]) / 1e9
    step = step_of_scale(largest, 5)
    top = step * (int(largest / step) + 1)
    drawing = Drawing(
        WIDTH, TOP + PANEL_HEIGHT + BOTTOM, f"Memory of fine-tuning {trace['model']} parameters, over time",
        "; ".join(f"{name}: peak {arm['peak'] / 1e9:.2f} GB" for name, arm in arms.items()),
    )  # fmt: skip
    drawing.text(LEFT - 44, 22, f"Memory while a model of {trace['model']} parameters is fine-tuned", size=15)
    drawing.text(LEFT - 44, 40, trace["subtitle"], kind="quiet")
    floor = TOP + PANEL_HEIGHT
    for number in range(int(top / step + 0.5) + 1):
        y = floor - PANEL_HEIGHT * number * step / top
        drawing.line(LEFT, y, WIDTH - 8, y)
        drawing.text(LEFT - 8, y + 4, f"{number * step:g} GB", anchor="end", kind="quiet", size=11)
    width = (WIDTH - 8 - LEFT - GAP * (len(arms) - 1)) / len(arms)
    for place, (name, arm) in enumerate(arms.items()):
        left = LEFT + place * (width + GAP)
        length = max(at for at, _ in arm["memory"])
        points = [
            (left + width * at / length, floor - PANEL_HEIGHT * max(size, 0) / 1e9 / top) for at, size in arm["memory"]
        ]
        drawing.area(thinned(points), floor, kind_of(name))
        highest = min(y for _, y in points)
        drawing.text(left + width / 2, max(highest - 8, TOP - 4), f"{arm['peak'] / 1e9:.2f} GB", anchor="middle")
        label = "plain torch" if name == "plain" else name
        drawing.text(left + width / 2, floor + 18, label, anchor="middle", kind=kind_of(name))
        drawing.text(left + width / 2, floor + 34, f"{length:.0f} s", anchor="middle", kind="quiet", size=11)
    return str(drawing)


def step_timeline(model: str, name: str, step: dict[str, Any]) -> str:
    """One step: its phases, the processors that trainer and daemon use, and what the SSD transfers."""
    counts = step["counts"]
    length = step["ends"][-1]
    lanes = [
        ("trainer, processors", "compute", rates(counts, 1, 1.0), 1),
        ("daemon, processors", "service", rates(counts, 2, 1.0), 0),
        ("SSD read, GB/s", "read", rates(counts, 3, 1e-9), 3),
        ("SSD written, GB/s", "write", rates(counts, 4, 1e-9), 2),
    ]
    most = [max((value for _, value in samples), default=0.0) for _, _, samples, _ in lanes]
    left, right, top = 150, WIDTH - 40, 84
    drawing = Drawing(
        WIDTH, top + LANE * len(lanes) + 34, f"One step of {name}, {model} parameters",
        ", ".join(f"{phase} until {end:.2f} s" for phase, end in zip(step["phases"], step["ends"], strict=True)),
    )  # fmt: skip
    drawing.text(12, 22, f"One step of {name}, {model} parameters: {length:.2f} s", size=15)
    begin = 0.0
    for phase, end in zip(step["phases"], step["ends"], strict=True):
        x, wide = left + (right - left) * begin / length, (right - left) * (end - begin) / length
        drawing.box(x, 38, wide, 24, "plain")
        if wide > 7 * len(phase):
            drawing.text(x + wide / 2, 54, phase, anchor="middle")
        begin = end
    for place, (label, kind, samples, partner) in enumerate(lanes):
        floor = top + LANE * (place + 1) - 10
        inside = [(at, max(value, 0.0)) for at, value in samples if 0 <= at <= length]
        largest = max(most[place], most[partner])  # The two lanes of a unit have one scale.
        scale = (LANE - 20) / largest if largest else 0.0
        drawing.line(left, floor, right, floor)
        drawing.area(
            [(left + (right - left) * at / length, floor - value * scale) for at, value in inside], floor, kind
        )
        drawing.text(left - 10, floor - 12, label, anchor="end", kind=kind)
        drawing.text(left - 10, floor + 2, f"most {most[place]:.1f}", anchor="end", kind="quiet", size=11)
    mark = step_of_scale(length, 8)
    floor = top + LANE * len(lanes) - 10
    for number in range(int(length / mark + 1e-9) + 1):
        x = left + (right - left) * number * mark / length
        drawing.line(x, 38, x, floor)
        drawing.text(x, floor + 18, f"{number * mark:g} s", anchor="middle", kind="quiet", size=11)
    return str(drawing)


def thinned(points: Samples) -> Samples:
    """The highest point of each pixel's width."""
    highest: dict[int, tuple[float, float]] = {}
    for point in points:
        column = int(point[0])
        if column not in highest or point[1] < highest[column][1]:
            highest[column] = point
    return list(highest.values())


def rates(counts: list[list[float]], column: int, unit: float) -> Samples:
    """What a total grew by in each second, over windows of several samples."""
    window = 4
    found = []
    for before, after in zip(counts, counts[window:], strict=False):
        seconds = after[0] - before[0]
        if seconds > 0:
            found.append(((before[0] + after[0]) / 2, unit * (after[column] - before[column]) / seconds))
    return found


def write_plots(trace: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """SVG files in ``folder``; their paths."""
    stem = f"train-{trace['model']}"
    texts = {f"{stem}-memory.svg": memory_over_time(trace)}
    for name, arm in trace["arms"].items():
        if arm["step"] is not None:
            texts[f"{stem}-step-{name.lower().replace(' ', '-')}.svg"] = step_timeline(
                trace["model"], name, arm["step"]
            )
    paths = []
    for name, text in texts.items():
        paths.append(folder / name)
        paths[-1].write_text(text)
    return paths


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit("usage: plots.py TRACE.json FOLDER")
    trace = json.loads(pathlib.Path(sys.argv[1]).read_text())
    for path in write_plots(trace, pathlib.Path(sys.argv[2])):
        print(path)


if __name__ == "__main__":
    main()
