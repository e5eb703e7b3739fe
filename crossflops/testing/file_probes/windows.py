"""Convolutions and pools whose sizes are told in unusual words."""

from crossflops.testing.file_probes.probe import FileProbe


def _pool(name: str, axes: int, attributes: str, out: int) -> FileProbe:
    """A pool of 9 along each axis."""
    into, to = ",".join(["9"] * axes), ",".join([str(out)] * axes)
    kernel = ", ".join(["3"] * axes)
    return FileProbe(
        name,
        f"g (float[1,2,{into}] x) => (float[1,2,{to}] y)"
        f" {{ y = MaxPool<kernel_shape = [{kernel}]{attributes}>(x) }}",
        0,
    )


def _conv(name: str, axes: int, attributes: str, out: int, kind: str = "Conv") -> FileProbe:
    """From 2 maps to 4, kernels of 3, along 6 for each axis."""
    into, to = ",".join(["6"] * axes), ",".join([str(out)] * axes)
    kernel = ",".join(["3"] * axes)
    weights = f"4,2,{kernel}" if kind == "Conv" else f"2,4,{kernel}"
    places = out**axes if kind == "Conv" else 6**axes
    return FileProbe(
        name,
        f"g (float[1,2,{into}] x, float[{weights}] w) => (float[1,4,{to}] y)"
        f" {{ y = {kind}<kernel_shape = [{kernel}]{attributes}>(x, w) }}",
        4 * 2 * 3**axes * places,
        ("w",),
    )


_SAME = ', auto_pad = "SAME_UPPER"'
_VALID = ', auto_pad = "VALID"'
_TRIPLE = ", strides = [3, 3, 3], dilations = [1, 1, 1]"

FILES = (
    _pool("pool_of_three_axes_without_strides", 3, "", 7),
    _pool("pool_of_three_padded_axes", 3, f"{_TRIPLE}, pads = [1, 1, 1, 1, 1, 1]", 3),
    _pool("pool_of_same_size", 2, f"{_SAME}, strides = [2, 2]", 5),
    _pool("pool_of_one_axis_of_same_size", 1, f"{_SAME}, strides = [2]", 5),
    _pool("pool_of_whole_windows", 2, f"{_VALID}, strides = [2, 2]", 4),
    _pool("pool_of_wide_windows", 2, f"{_VALID}, strides = [2, 2], dilations = [2, 2]", 3),
    _conv("conv_of_same_size", 2, f"{_SAME}, strides = [2, 2]", 3),
    _conv("conv_of_three_axes_of_same_size", 3, f"{_SAME}, strides = [2, 2, 2]", 3),
    _conv("conv_of_whole_windows", 2, _VALID, 4),
    _conv("conv_of_wide_windows", 2, f"{_VALID}, dilations = [2, 2]", 2),
    _conv("conv_of_four_axes", 4, "", 4),
    _conv("transposed_of_same_size", 2, f"{_SAME}, strides = [2, 2]", 12, "ConvTranspose"),
    _conv("transposed_of_three_axes", 3, "", 8, "ConvTranspose"),
    _conv("transposed_to_a_size", 2, ", strides = [2, 2], output_shape = [12, 12]", 12,
          "ConvTranspose"),
)  # fmt: skip
