import pytest

from torchsonic.functional import ORDERS, make_plan, order_costs


@pytest.mark.parametrize(
    ("channels", "modes", "order"),
    [
        ((64, 64), 16, "modes"),
        ((64, 64), 64, "modes"),
        ((64, 64), 128, "channels"),
        ((3, 64), 16, "modes"),
        ((3, 3), 16, "channels"),
    ],
)
def test_the_fewer_signals_are_transformed(channels, modes, order):
    assert make_plan(8, *channels, modes, (64, 64), (64, 64)).order == order


def test_padding_favours_mixing_on_the_smaller_grid():
    circular = order_costs(64, 64, 80, (64, 64))
    padded = order_costs(64, 64, 80, (64, 64), padding="zeros")
    assert min(circular, key=circular.__getitem__) == "channels"
    assert min(padded, key=padded.__getitem__) == "modes"


def test_the_user_can_force_every_order():
    for order in ORDERS:
        assert make_plan(1, 4, 4, 2, (8,), (8,), order=order).order == order


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": "fastest"}, "order must be one of auto, modes, channels"),
        ({"mode_chunk": 0}, "mode_chunk must be at least 1"),
        ({"padding": "replicate"}, "padding_mode must be one of circular"),
    ],
)
def test_bad_options_are_refused_by_name(options, words):
    with pytest.raises(ValueError, match=words):
        make_plan(1, 4, 4, 2, (8,), (8,), **options)


def test_chunks_cover_everything_once():
    plan = make_plan(7, 4, 4, 10, (512, 512), (512, 512), mode_chunk=3)
    assert [list(range(10))[c] for c in plan.mode_chunks(10)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert [i for c in plan.sample_chunks(7) for i in list(range(7))[c]] == list(range(7))
