"""Would catch a local engine that takes as a number what Spark's refuses."""

import pyarrow as pa
import pytest

from megaphone import LocalEngine, PlanError
from megaphone.dataflow.operators import Input, key_operator

WORD = pa.schema([("word", pa.string())])


@pytest.mark.parametrize(("workers", "bins"), [(True, 4), (2.0, 4), (0, 4), (5, 4), (2, 4.0), (2, True), (2, 3)])
def test_engine_that_could_not_work_is_refused(workers, bins):
    spec = key_operator("count", Input(WORD, ("word",)), max, WORD)
    with pytest.raises(PlanError, match="asked for"):
        LocalEngine(spec, workers, bins)
