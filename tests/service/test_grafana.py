"""Would catch a Grafana dashboard that asks for a metric or a label that we do not export, or leaves one out."""

import json
import re
from pathlib import Path

from megaphone.service.prometheus import METRICS

BOARD = json.loads((Path(__file__).parents[2] / "docs" / "grafana" / "megaphone.json").read_text())
LABELS = {"query", "name", "control", "operator", "worker", "host", "phase"}
"""Those that docs/operations.md names."""


def expressions():
    for panel in BOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (mark["expr"] for mark in BOARD["annotations"]["list"])
    yield from (one["query"]["query"] for one in BOARD["templating"]["list"] if one["type"] == "query")


def test_every_metric_is_exported_and_every_exported_metric_is_shown():
    named = {name for expression in expressions() for name in re.findall(r"megaphone_\w+", expression)}
    assert named == METRICS.keys()


def test_counters_are_shown_as_rates_or_totals():
    counters = {name for name, (kind, _) in METRICS.items() if kind == "counter"}
    bare = [e for e in expressions() if any(e.startswith(name) for name in counters)]
    assert bare == []


def test_every_label_is_one_that_we_give():
    text = " ".join(expressions())
    used = set(re.findall(r"(\w+)=~", text)) | {
        label for group in re.findall(r"by \(([^)]*)\)", text) for label in re.split(r",\s*", group)
    }
    shown = {
        label
        for panel in BOARD["panels"]
        for target in panel["targets"]
        for label in re.findall(r"{{(\w+)}}", target["legendFormat"])
    }
    assert used | shown <= LABELS


def test_panels_are_told_apart_and_do_not_overlap():
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def test_nothing_in_it_is_of_one_installation():
    sources = {panel["datasource"]["uid"] for panel in BOARD["panels"]}
    assert sources == {"${datasource}"}
    assert re.findall(r"https?://", json.dumps(BOARD)) == []
