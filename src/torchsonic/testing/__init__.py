"""The operator's laws as public functions, for testing your own layers."""

from torchsonic.testing.laws import (
    TOLERANCE,
    assert_gradients_match_dense,
    assert_matches_dense,
    assert_orders_agree,
    assert_permutes_with_axes,
    assert_resolution_invariant,
    assert_shift_equivariant,
    assert_state_space_limit,
    assert_turns_with_image,
    assert_unit_free,
)
from torchsonic.testing.orientation import assert_orientation_is_exact, assert_storages_agree
from torchsonic.testing.reference import band_limited_field, dense_conv, relative_error
from torchsonic.testing.turns import assert_symbol_turns, assert_turns_in_space, assert_turns_with_array

__all__ = [
    "TOLERANCE",
    "assert_gradients_match_dense",
    "assert_matches_dense",
    "assert_orders_agree",
    "assert_orientation_is_exact",
    "assert_permutes_with_axes",
    "assert_resolution_invariant",
    "assert_shift_equivariant",
    "assert_state_space_limit",
    "assert_storages_agree",
    "assert_symbol_turns",
    "assert_turns_in_space",
    "assert_turns_with_array",
    "assert_turns_with_image",
    "assert_unit_free",
    "band_limited_field",
    "dense_conv",
    "relative_error",
]
