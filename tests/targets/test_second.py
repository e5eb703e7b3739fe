"""A second model takes from the first what is not said of it."""

import pytest

from crossflops.errors import InputError, TargetError
from crossflops.targets.request import Request, build_second_request
from tests.onnx_files import parsed, saved

IMAGES = "g (float[n, 3, h, h] x) => (float[n, 3, h, h] y) { y = Relu (x) }"
LAST = "g (float[n, 8, 8, 3] x) => (float[n, 8, 8, 3] y) { y = Relu (x) }"


def first(target, *inputs, **options):
    """The request for a first model."""
    return Request.from_arguments(target, list(inputs), **options)


@pytest.fixture
def files(tmp_path):
    """Two ONNX files, one with the channels at the end."""
    return [saved(tmp_path, parsed(text), f"{n}.onnx") for n, text in enumerate((IMAGES, LAST))]


def shapes(request):
    """The shapes that are given."""
    return [spec.shape for spec in request.specs]


def test_inputs_are_taken_over(files):
    """As they are, where they fit, and with what else is said of the first file."""
    request = build_second_request(files[0], {}, first(files[0], "2x3x8x8"))
    assert shapes(request) == [(2, 3, 8, 8)]
    request = build_second_request(files[0], {}, first(files[0], dims={"n": 4, "h": 8}))
    assert request.dims == {"n": 4, "h": 8}


def test_axes_are_moved_where_the_model_wants_them(files):
    """The channels go to the end, and come back from there."""
    assert shapes(build_second_request(files[1], {}, first(files[0], "2x3x8x8"))) == [(2, 8, 8, 3)]
    assert shapes(build_second_request(files[0], {}, first(files[1], "2x8x8x3"))) == [(2, 3, 8, 8)]


def test_a_name_is_left_out_where_it_is_another(files, tmp_path):
    """The one input of the second file is not called as that of the first."""
    other = saved(tmp_path, parsed(IMAGES.replace(" x)", " z)").replace("(x)", "(z)")), "z.onnx")
    request = build_second_request(other, {}, first(files[0], "x=2x3x8x8"))
    assert [(spec.name, spec.shape) for spec in request.specs] == [("0", (2, 3, 8, 8))]


def test_what_is_said_replaces_what_is_not(files):
    """Own inputs, and nothing is tried."""
    request = build_second_request(files[0], {"inputs": ["5x3x9x9"]}, first(files[0], "2x3x8x8"))
    assert shapes(request) == [(5, 3, 9, 9)]


def test_arguments_go_to_callables_alone(files):
    """A file takes none; a callable takes those of the first, or its own."""
    request = Request.from_arguments("m:f", ["1x3"], arguments={"weights": None})
    assert build_second_request(files[0], {"inputs": ["1x3x8x8"]}, request).arguments == {}
    for options, given in (({}, "'weights'"), ({"arguments": {"width": 2}}, "'width'")):
        with pytest.raises(TargetError) as caught:  # it takes one argument, "text"
            build_second_request("textwrap:dedent", {"inputs": ["1x3"], **options}, request)
        assert given in caught.value.message


def test_an_option_that_there_is_not(files):
    """It is named, and so are those that there are."""
    with pytest.raises(InputError) as caught:
        build_second_request(files[0], {"sizes": 1}, first(files[0], "2x3x8x8"))
    assert "'sizes'" in caught.value.message
    assert "inputs_file" in caught.value.hint
