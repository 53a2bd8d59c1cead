"""Would catch a soak that finds no leak, or one where there is none; a lost row it does not count; a page that lies."""

import os
import subprocess
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from megaphone.harness.chaos.verdict import expected_rows
from megaphone.harness.chaos.warden import WORKER
from megaphone.harness.soak import census, report
from megaphone.harness.soak.ledger import Ledger, missing
from megaphone.harness.soak.measures import MEASURES, AtMost, Flat, Shown, judged

ROOT = Path(__file__).parents[2]
RECORDS = 3000
FIGURES = {measure.name: 0.0 for measure in MEASURES}
JUDGED = [measure for measure in MEASURES if measure.rule != Shown()]


def growing(middle: dict[str, float], end: dict[str, float]) -> list[str]:
    """The measures that grow from the middle to the end."""
    return [line.name for line in judged(FIGURES, FIGURES | middle, FIGURES | end) if line.grows]


@pytest.mark.parametrize("measure", JUDGED, ids=lambda measure: measure.name)
def test_more_than_is_allowed_is_found_in_every_measure_that_is_judged(measure: Any) -> None:
    rule = measure.rule
    most = rule.bound if isinstance(rule, AtMost) else 1000 + max(rule.amount, rule.share * 1000)
    before = {measure.name: min(1000, most)}
    assert growing(before, {measure.name: most}) == []
    assert growing(before, {measure.name: most + 1}) == [measure.name]


def test_a_thread_for_each_rescale_is_found_and_some_more_or_less_are_not() -> None:
    rescales_in_a_half = 15
    noise = [24, 26, 23, 27, 24]
    for middle, end in pairwise(noise):
        assert growing({"driver: threads": middle}, {"driver: threads": end}) == []
        leaking = {"driver: threads": end + rescales_in_a_half}
        assert growing({"driver: threads": middle}, leaking) == ["driver: threads"]


def test_what_fills_up_before_the_middle_does_not_grow() -> None:
    (line,) = [line for line in judged(FIGURES, FIGURES, FIGURES | {"/history: migrations": 100}) if line.end == 100]
    assert not line.grows
    assert not Flat(4).grows(50, 20)


Rows = list[tuple[int, int]]

ROWS = sorted(expected_rows(RECORDS), key=lambda row: row[1])


def counted(*epochs: Rows) -> tuple[int, int]:
    """Rows lost and doubled, as the soak counts them."""
    ledger = Ledger()
    for epoch, rows in enumerate(epochs):
        ledger.add(pa.table(list(map(list, zip(*rows, strict=True))), names=["digit", "total"]), epoch)
    lost, doubled = missing(ledger.count.highest, RECORDS)
    return ledger.count.lost + lost, ledger.count.doubled + doubled


def test_rows_that_are_all_there_are_right_however_they_lie_in_their_epoch() -> None:
    assert counted(ROWS[:1000], ROWS[1000:]) == (0, 0)
    assert counted(ROWS[:1000][::-1], ROWS[1000:1001], ROWS[1001:][::-1]) == (0, 0)


@pytest.mark.parametrize("at", [0, 500, RECORDS - 1])
def test_row_that_is_lost_or_doubled_is_counted(at: int) -> None:
    cut = max(at, 700)
    without = ROWS[:at] + ROWS[at + 1 :]
    assert counted(without[:700], without[700:]) == (1, 0)
    assert counted([*ROWS[:700], *([ROWS[at]] if at < 700 else [])], [*ROWS[700:cut], ROWS[at], *ROWS[cut:]])[1] >= 1
    assert counted(ROWS, [ROWS[at]]) == (0, 1)


def test_rows_behind_which_there_is_no_record_are_counted() -> None:
    digit = 3
    last = max(total for found, total in ROWS if found == digit)
    assert counted(ROWS, [(digit, last + 1), (digit, last + 2)]) == (0, 2)


def test_processes_are_counted_by_kind_and_the_dead_are_not() -> None:
    with subprocess.Popen(["sleep", "0"]) as gone:
        pass
    here = f"python -m {WORKER}"
    figures = census.processes({os.getpid(): here, os.getppid(): here, gone.pid: here}, driver=gone.pid)
    assert (figures["workers: processes"], figures["driver: processes"]) == (2, 0)
    assert 1 <= figures["workers: threads of one"] < figures["workers: threads"]
    assert figures["workers: memory of one"] > 1


def test_files_of_a_folder_are_counted_but_not_those_of_another(tmp_path: Path) -> None:
    for name in ("ours/plans/1", "offsets/1", "offsets/2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    assert census.files(tmp_path, but="ours") == (3, 10)
    assert census.files(tmp_path / "ours") == (2, 5)
    assert census.files(tmp_path / "nowhere") == (0, 0)


def test_table_names_what_grows() -> None:
    lines = judged(FIGURES, FIGURES, FIGURES | {"driver: threads": 4096.0})
    (told,) = [line for line in report.text(lines).splitlines() if "grows" in line]
    assert told.split() == ["driver:", "threads", "0", "0", "4,096", "+4", "grows"]


def test_page_shows_the_saved_run() -> None:
    page = (ROOT / report.PAGE).read_text()
    assert page == report.page(page, report.read(ROOT / report.SAVED))


def test_saved_run_was_judged_by_the_rules_there_are() -> None:
    saved = report.read(ROOT / report.SAVED)
    points = ({line["name"]: line[point] for line in saved["lines"]} for point in ("start", "middle", "end"))
    assert [asdict(line) for line in judged(*points)] == saved["lines"]


def test_page_without_a_place_for_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for the run"):
        report.page("# Reliability\n", report.read(ROOT / report.SAVED))
