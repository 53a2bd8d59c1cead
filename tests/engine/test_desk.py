"""Would catch a refusal by path or method that does not say what there is."""

import pytest

from megaphone.engine.spark.desk import Desk
from megaphone.service.answers import Refusal, Request


@pytest.mark.parametrize(("method", "path", "other"), [("POST", "/status", "GET"), ("GET", "/pause", "POST")])
def test_wrong_method_is_told_the_right_one(method, path, other):
    with pytest.raises(Refusal, match=f"{path} by {method}; use {other}") as refused:
        Desk(None)(Request(method, path, {}))
    assert (refused.value.status, refused.value.headers) == (405, {"Allow": other})
