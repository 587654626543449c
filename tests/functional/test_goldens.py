import json

import pytest

from tests.functional.goldens import CASES, STORED, evaluate, summarise

WAYS = (
    ("auto", {}),
    ("modes", {"mode_chunk": 2}),
    ("modes", {"recompute": True}),
    ("channels", {}),
    ("channels", {"mode_chunk": 3}),
)
EXPECTED = json.loads(STORED.read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_do_not_depend_on_how_they_are_computed(case):
    for order, execution in WAYS:
        found = summarise(evaluate(case, order=order, **execution))
        assert found.keys() == EXPECTED[case.name].keys()
        for name, (seen, size) in EXPECTED[case.name].items():
            assert found[name] == pytest.approx([seen, size], abs=1e-11 * (1 + size)), (order, execution, name)
