"""Inputs for tools that pass them by position."""

import pytest

from crossflops.errors import InputError
from crossflops.frontends.inputs import to_call_arguments
from crossflops.plugins.adapter import positional


def forward(x, mask=None, scale=2, *, key=None):
    """Answer what was bound."""
    return x, mask, scale, key


@pytest.mark.parametrize(
    ("args", "kwargs", "bound"),
    [
        (("x",), {}, ("x",)),
        (("x",), {"mask": "m"}, ("x", "m")),
        ((), {"mask": "m", "x": "x"}, ("x", "m")),
        (("x",), {"scale": 3}, ("x", None, 3)),
        ((), {"scale": 3, "x": "x"}, ("x", None, 3)),
    ],
)
def test_keywords_become_positions(args, kwargs, bound):
    """The call by position means what the call by keyword meant, with no trailing default."""
    assert positional(forward, args, kwargs) == bound
    assert forward(*bound) == forward(*args, **kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("x",), {"key": 1}, "'key' can be passed only by keyword"),
        (("x",), {"nosuch": 1}, "'nosuch' can be passed only by keyword"),
        (("x",), {"x": 1}, "'x' is given twice"),
        ((), {"mask": 1}, "'x' is missing"),
    ],
)
def test_what_cannot_be_bound_is_said(args, kwargs, message):
    """Nothing is dropped, and nothing guessed."""
    with pytest.raises(InputError, match=message):
        positional(forward, args, kwargs)


@pytest.mark.parametrize(
    ("inputs", "args", "kwargs"),
    [
        (1, (1,), {}),
        ([1, 2], (1, 2), {}),
        ((1, 2), (1, 2), {}),
        ((), (), {}),
        ({"x": 1}, (), {"x": 1}),
        (((1,), {"x": 2}), (1,), {"x": 2}),
        ((1, {"x": 2}), (1, {"x": 2}), {}),
        (((1,), (2,)), ((1,), (2,)), {}),
    ],
)
def test_inputs_as_users_write_them(inputs, args, kwargs):
    """A value, a tuple, a dict, or the pair of both."""
    assert to_call_arguments(inputs) == (args, kwargs)
