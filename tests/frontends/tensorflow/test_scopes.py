"""In which layer an operation is, told from names: no TensorFlow is needed for it."""

import pytest

from crossflops.frontends.tensorflow.convert.operators import operation_name_in_function
from crossflops.frontends.tensorflow.record.layers import innermost_scope

pytestmark = pytest.mark.tensorflow

SCOPES = dict.fromkeys(("net", "net/conv_1", "net/lstm", "net/lstm/while/cell", "conv_1"))


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("net/conv_1/convolution", "net/conv_1"),
        ("net/conv_1/StatefulPartitionedCall/convolution", "net/conv_1"),
        ("net/x/conv_1/add", "net"),
        ("net/lstm/while/body/_1/net/lstm/while/cell/MatMul", "net/lstm/while/cell"),
        ("net/lstm/while/body/_1/net/lstm/while/add", "net/lstm"),
        ("net/StatefulPartitionedCall/conv_1/add", "conv_1"),
        ("other/add", None),
        ("add", None),
    ],
)
def test_the_innermost_scope_holds(name, scope):
    """A name in an inlined function stands behind those of what called it."""
    assert innermost_scope(name, SCOPES) == scope


def test_names_within_the_body_of_a_loop():
    """What TensorFlow puts before a name when it takes a loop apart goes again."""
    assert operation_name_in_function("a/while/body/_12/a/while/MatMul") == "a/while/MatMul"
    assert operation_name_in_function("a/MatMul") == "a/MatMul"
