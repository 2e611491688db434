"""What a dashboard is made of, and its JSON. A dashboard is rows of panels; a panel is a title, a sentence, a unit and
queries. Thresholds colour what is wrong: a panel without them says nothing of good and bad.
"""

from __future__ import annotations

import dataclasses
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NODE = 'instance="$instance"'
JOB = f'{NODE}, tierd_job=~"$job"'
OF_JOB = "{{tierd_job}} of {{uid}}"
HIT = ', result="hit"'
NOT_OK = ', code!="OK"'
# Of a part of the requests at the devices, which are selected by labels: of each class by itself.
DEVICE_QUANTILE = (
    "histogram_quantile({}, sum by (device, direction, class, le) "
    "(rate(tierd_device_request_seconds_bucket{{{}}}[$__rate_interval])))"
)
ROW_HEIGHT, STAT_HEIGHT, WIDTH = 8, 4, 24

# What is wrong above a value, and in what colour. The first step is good.
NEVER = ((None, "green"), (1, "red"))
PART_FULL = ((None, "green"), (0.8, "yellow"), (0.9, "red"))
FALLEN = ((None, "yellow"), (1, "green"))


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    sentence: str
    queries: dict[str, str]  # By their legend.
    unit: str = "short"
    kind: str = "timeseries"  # Or stat, table.
    width: int = 12
    thresholds: tuple[tuple[float | None, str], ...] = ()
    columns: tuple[str, ...] = ()  # Of a table: its labels, in their order.
    colours: tuple[tuple[str, str], ...] = ()  # Of a table: by what stands in a cell.


def stat(title: str, sentence: str, query: str, legend: str = "", **more: Any) -> Panel:
    return Panel(title, sentence, {legend or title.lower(): query}, kind="stat", width=4, **more)


@dataclasses.dataclass(frozen=True)
class Board:
    uid: str
    title: str
    sentence: str
    variables: list[dict[str, Any]]
    rows: dict[str, list[Panel]]
    links: dict[str, str]  # Title to the uid of another board.


def rate(metric: str, labels: str) -> str:
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def of_tierd(query: str, labels: str) -> str:
    """Of a query for metrics that other exporters have too: without theirs, which may have the same instance."""
    selector = f"{{{labels}}}" if labels else ""
    return f"{query} and on (instance, job) tierd_build_info{selector}"


def quantile(part: float, labels: str, by: str = "le") -> str:
    return f"histogram_quantile({part}, sum by ({by}) ({rate('tierd_acquire_wait_seconds_bucket', labels)}))"


def variable(name: str, label: str, query: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "includeAll": False,
        "multi": False,
        "current": {},
        "hide": 0,
        **more,
    }


DATA_SOURCE = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "current": {},
    "hide": 0,
    "refresh": 1,
}
INSTANCE = variable("instance", "Node", "label_values(tierd_build_info, instance)")
JOBS = variable(
    "job",
    "Job",
    'label_values(tierd_job_ram_bytes{instance="$instance"}, tierd_job)',
    includeAll=True,
    multi=True,
    allValue=".+",
)


def table_json(panel: Panel, number: int, place: dict[str, int], targets: list[dict[str, Any]]) -> dict[str, Any]:
    """What its query has now, a series in a row and a label in a column."""
    marks = {text: {"color": colour, "index": index} for index, (text, colour) in enumerate(panel.colours)}
    coloured = [
        {
            "matcher": {"id": "byName", "options": column},
            "properties": [
                {"id": "mappings", "value": [{"type": "value", "options": marks}]},
                {"id": "custom.cellOptions", "value": {"type": "color-text"}},
            ],
        }
        for column in panel.columns[1:2]
    ]
    order = {"indexByName": {name: index for index, name in enumerate(panel.columns)}}
    return {
        "id": number,
        "type": "table",
        "title": panel.title,
        "description": panel.sentence,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {}, "overrides": coloured},
        "options": {"showHeader": True, "cellHeight": "sm"},
        "transformations": [
            {"id": "filterFieldsByName", "options": {"include": {"names": list(panel.columns)}}},
            {"id": "organize", "options": order},
        ],
        "targets": [{**target, "range": False, "instant": True, "format": "table"} for target in targets],
    }


def panel_json(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults["min"] = 0
    if panel.thresholds:
        steps = [{"value": value, "color": color} for value, color in panel.thresholds]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        defaults["color"] = {"mode": "thresholds"} if panel.kind == "stat" else {"mode": "palette-classic"}
        if panel.kind == "timeseries":
            defaults["custom"] = {"thresholdsStyle": {"mode": "line"}}
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi"},
    }
    if panel.kind == "stat":
        named = panel.unit == "none"  # What its labels say is what counts.
        options = {
            "colorMode": "value" if panel.thresholds else "none",
            "graphMode": "none",
            "textMode": "name" if named else "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend, "range": True}
        for index, (legend, query) in enumerate(panel.queries.items())
    ]
    if panel.kind == "table":
        return table_json(panel, number, place, targets)
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.sentence,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }


def panels_json(board: Board) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in board.rows.items():
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        panels.append(
            {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        )
        top += 1
        left, height = 0, 0
        for panel in row:
            if left + panel.width > WIDTH:
                left, top = 0, top + height
            height = STAT_HEIGHT if panel.kind == "stat" else ROW_HEIGHT
            place = {"x": left, "y": top, "w": panel.width, "h": height}
            panels.append(panel_json(panel, len(panels) + 1, place))
            left += panel.width
        top += height
    return panels


def annotation(name: str, color: str, query: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "expr": query,
        "step": "30s",
        "titleFormat": text,
        "textFormat": "{{instance}}",
        "useValueForTime": False,
    }


def board_json(board: Board) -> dict[str, Any]:
    labels = NODE if INSTANCE in board.variables else ""
    where = f"{{{labels}}}" if labels else ""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.sentence,
        "tags": ["tierd"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {
            "list": [
                annotation(
                    "Restarts",
                    "red",
                    of_tierd(f"changes(process_start_time_seconds{where}[1m]) > 0", labels),
                    "tierd restarted",
                ),
                annotation("Drains", "yellow", f"tierd_draining{where} == 1", "drained"),
            ]
        },
        "links": [
            {
                "title": title,
                "type": "link",
                "icon": "dashboard",
                "url": f"/d/{uid}",
                "keepTime": True,
                "includeVars": True,
                "targetBlank": False,
                "asDropdown": False,
                "tags": [],
                "tooltip": "",
            }
            for title, uid in board.links.items()
        ],
        "templating": {"list": board.variables},
        "panels": panels_json(board),
    }
