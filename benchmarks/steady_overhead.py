"""What does being migrateable cost while nothing moves, by the number of bins?

Key count at two domains and hash count, preloaded, open loop, without snapshots on either side. Native, which has no
bins, and the default of 2^12 bins are measured in several rounds that take turns; other numbers of bins once.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from megaphone.harness.experiment import Experiment, Form, Parameters, Ratio, Result, Table
from megaphone.harness.latency import QUANTILES, Histogram
from megaphone.harness.recipe import count, counting, ms, over, seconds

DEFAULT = 12
SHIFTS = {"smoke": (4, 12), "quick": (4, 12, 20), "full": tuple(range(4, 21, 2))}
ROUNDS = {"smoke": 1, "quick": 4, "full": 4}
STEADY_S = {"smoke": 1.5, "quick": 16.0, "full": 30.0}
COUNTS = {
    "smoke": (("key", 100_000), ("hash", 50_000)),
    "quick": (("key", 16_000_000), ("key", 128_000_000), ("hash", 4_000_000)),
    "full": (("key", 64_000_000), ("key", 1_024_000_000), ("hash", 16_000_000)),
}
RATES = {"smoke": 2_000, "quick": 100_000, "full": 200_000}


def runs(form: Form) -> list[Parameters]:
    """All variants of one count after another, so that what is compared is close together."""
    return [run for benchmark, keys in COUNTS[form] for run in _variants(form, benchmark, keys)]


def _variants(form: Form, benchmark: str, keys: int) -> Iterator[Parameters]:
    common = {
        "benchmark": benchmark,
        "keys": keys,
        "rate": RATES[form],
        "snapshot_share": 0,
        "steady_s": STEADY_S[form],
    }
    for round in range(ROUNDS[form]):
        # Who is first has the colder JVM: ours, then in turn.
        for version in ("migrateable", "native")[:: -1 if round % 2 else 1]:
            name = f"{_title(benchmark, keys)}, {_variant(version, DEFAULT)}, round {round}"
            yield counting(form, name, version=version, bins=1 << DEFAULT, round=round, **common)
    for shift in SHIFTS[form]:
        if shift != DEFAULT:
            name = f"{_title(benchmark, keys)}, {_variant('migrateable', shift)}"
            yield counting(form, name, bins=1 << shift, round=0, **common)


def _title(benchmark: str, keys: int) -> str:
    return f"{benchmark} count, {keys / 1e6:g}M keys"


def _variant(version: str, shift: int) -> str:
    return "native" if version == "native" else f"2^{shift} bins"


def merged(results: Sequence[Result]) -> dict[str, dict[str, Histogram]]:
    """By count and variant, all rounds together; native first, then by the number of bins."""
    found: dict[str, dict[str, Histogram]] = {}
    order = lambda result: (result["parameters"]["version"] != "native", result["parameters"]["bins"])  # noqa: E731
    for result in sorted(results, key=order):
        given = result["parameters"]
        variants = found.setdefault(_title(given["benchmark"], given["keys"]), {})
        variant = _variant(given["version"], given["bins"].bit_length() - 1)
        variants[variant] = variants.get(variant, Histogram()).merge([Histogram.read(result["steady_histogram"])])
    return found


def table(results: Sequence[Result]) -> Table:
    """Every percentile in milliseconds, and the median beside native's."""
    rows = [
        (title, variant, *map(ms, _figures(histogram)), f"{_to_native(variants, variant, 0.5) or 0:.2f}")
        for title, variants in merged(results).items()
        for variant, histogram in variants.items()
    ]
    return Table(("count", "variant", *QUANTILES, "max", "median to native"), rows)


def _figures(histogram: Histogram) -> list[float]:
    summary = histogram.summary()
    return [summary[f"{name}_ms"] for name in (*QUANTILES, "max")]


def _to_native(variants: dict[str, Histogram], variant: str, q: float) -> float | None:
    if "native" not in variants or variant not in variants:
        return None
    return over(variants[variant].quantile(q), variants["native"].quantile(q))


def draw(results: Sequence[Result], path: Path) -> None:
    """The complementary distribution of latency, a panel for each count."""
    from megaphone.harness.report import draw_ccdf

    panels = merged(results)
    draw_ccdf({title: {name: found.ccdf() for name, found in lines.items()} for title, lines in panels.items()}, path)


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """The median with 2^12 bins, to native's: the worst of the counts; and what a million bins cost."""
    found = merged(results).values()
    default = [_to_native(variants, f"2^{DEFAULT} bins", 0.5) for variants in found]
    many = [_to_native(variants, "2^20 bins", 0.5) for variants in found]
    return [
        Ratio("median latency with 2^12 bins to native, worst of the counts", _worst(default), most=1.1),
        Ratio("median latency with 2^20 bins to native, worst of the counts", _worst(many)),
    ]


def _worst(found: Sequence[float | None]) -> float | None:
    return max((value for value in found if value is not None), default=None)


EXPERIMENT = Experiment(
    name="steady_overhead",
    question="What does being migrateable cost while nothing moves, by the number of bins?",
    paper="figures 13 to 15",
    claim="a small constant factor over native, hardly to be told from it up to 2^12 bins, and notable from 2^16 on.",
    criteria=("I1", "I2"),
    runs=runs,
    run=count,
    table=table,
    draw=draw,
    ratios=ratios,
    seconds=seconds,
)
