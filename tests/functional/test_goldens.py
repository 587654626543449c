import json

import pytest

from tests.functional.goldens import CASES, STORED, evaluate, summarise
from torchsonic.functional import ORDERS

EXPECTED = json.loads(STORED.read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_do_not_depend_on_how_they_are_computed(case):
    for order, execution in zip(
        ("auto", *ORDERS), ({}, {"mode_chunk": 2}, {"recompute": True}, {}, {"mode_chunk": 3}), strict=True
    ):
        found = summarise(evaluate(case, order=order, **execution))
        assert found.keys() == EXPECTED[case.name].keys()
        for name, (seen, size) in EXPECTED[case.name].items():
            assert found[name] == pytest.approx([seen, size], abs=1e-11 * (1 + size)), (order, execution, name)
