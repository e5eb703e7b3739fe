"""Numbers as tools print them."""

import pytest

from crossflops.plugins.adapter import exact


@pytest.mark.parametrize(
    ("printed", "meant"),
    [(3, 3), (3.0, 3), (4111514624.0, 4111514624), (2.5, 2.5), (10**30, 10**30), (-1.0, -1)],
)
def test_integral_floats_become_ints(printed, meant):
    """Equal in value, an int where it is integral, and untouched where it is not."""
    assert exact(printed) == meant
    assert type(exact(printed)) is type(meant)


def test_scalars_of_numpy_become_pythons():
    """What cannot be written as JSON is taken along all the same."""
    numpy = pytest.importorskip("numpy")
    assert type(exact(numpy.int64(7))) is int
    assert type(exact(numpy.float64(7))) is int
    assert type(exact(numpy.float32(0.5))) is float


@pytest.mark.parametrize("printed", [float("nan"), float("inf")])
def test_what_is_no_count_is_refused(printed):
    """A NaN is not zero."""
    with pytest.raises(ValueError, match="not a count"):
        exact(printed)
