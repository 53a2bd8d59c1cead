"""Would catch a public name that is gone, new by accident, or costs an import of Spark to everyone."""

import subprocess
import sys

import pytest

import megaphone

MEANT = {
    "operators": ["Bits", "binary", "state_machine", "unary", "vectorised"],
    "what a vectorised fold sees": ["Joint", "Records", "States"],
    "control": ["Assignment", "Control", "Migration", "Move", "Plan", "Status", "Step"],
    "policies": ["Balancer", "Scaler"],
    "engines": ["LocalEngine", "tuned"],
    "state at rest": ["read_state"],
    "errors": ["CheckpointError", "FoldError", "MegaphoneError", "PlanError", "ProtocolError", "WorkerLost"],
}


def test_public_names_are_those_we_mean():
    assert megaphone.__all__ == sorted(name for names in MEANT.values() for name in names)


@pytest.mark.parametrize("name", megaphone.__all__)
def test_public_name_is_there_and_documented(name):
    public = getattr(megaphone, name)
    # A dataclass without a docstring is given its signature for one.
    assert public.__doc__
    assert not public.__doc__.startswith(f"{name}(")


def test_star_brings_the_public_names():
    everything: dict[str, object] = {}
    exec("from megaphone import *", everything)
    assert set(megaphone.__all__) <= everything.keys()


def test_other_names_are_not_there():
    with pytest.raises(AttributeError, match="module 'megaphone' has no attribute 'rebalance'"):
        _ = megaphone.rebalance


def test_import_brings_in_neither_spark_nor_arrow():
    code = "import sys, megaphone; sys.exit(any(name in sys.modules for name in ('pyspark', 'pyarrow', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_packages_that_spark_looks_through_bring_in_nothing_of_ours():
    costly = "not {'megaphone', 'numpy', 'pyarrow'}.isdisjoint(sys.modules)"
    code = f"import sys, pyspark_nexmark, pyspark_megaphone_state; sys.exit({costly})"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
