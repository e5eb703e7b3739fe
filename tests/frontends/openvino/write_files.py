"""Write the files of this folder with OpenVINO, from models of PyTorch and from its own layers.

    pip install openvino torch numpy && python tests/frontends/openvino/write_files.py

Notes on the run that made a file are left out of it, since they name paths and versions.
"""

import re
from pathlib import Path

import numpy as np
import openvino as ov
import torch
from openvino import opset13 as op
from torch import nn

FILES = Path(__file__).parent / "files"


class ConvNet(nn.Module):
    """Strided, grouped and pointwise convolutions, a pool, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish())
        self.depthwise = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.grouped = nn.Conv2d(8, 4, 1, groups=2)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.pool(self.grouped(torch.relu(self.depthwise(self.stem(x)))))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)).softmax(-1)


class Attention(nn.Module):
    """An embedding, and a layer of a transformer of two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, ids):
        x = self.embed(ids)
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, 2, 4).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=False)
        x = self.norm(x + self.out(y.transpose(1, 2).reshape(batch, length, 8)))
        return x + self.down(nn.functional.gelu(self.up(x)))


class Recurrent(nn.Module):
    """An LSTM of two directions, and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 3, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


class Upsampler(nn.Module):
    """A transposed convolution, a normalization of groups, and a larger image."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.norm = nn.GroupNorm(2, 4)
        self.last = nn.Conv2d(4, 2, 3)

    def forward(self, x):
        x = self.norm(self.up(nn.functional.silu(self.down(x))))
        return self.last(nn.functional.interpolate(x, scale_factor=2, mode="bilinear"))


class Repeated(nn.Module):
    """A linear layer that runs five times."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        for step in range(5):
            x = self.linear(x) + step
        return x


def save(name: str, model: ov.Model, half: bool = False) -> None:
    """Write a model, without notes on the run."""
    path = FILES / f"{name}.xml"
    ov.save_model(model, path, compress_to_fp16=half)
    text = re.sub(
        r"[ \t]*<rt_info>.*?</rt_info>\n|[ \t]*<rt_info */>\n", "", path.read_text(), flags=re.S
    )
    path.write_text(re.sub(r"^[ \t]+", "", text, flags=re.M))


def build_compressed_model() -> ov.Model:
    """Products with weights of int8, and of uint4 in groups of 16 with zero points."""
    x = op.parameter([-1, 64], np.float32, name="x")
    weight = op.convert(op.constant(np.ones((32, 64), np.int8)), "f32")
    scale = op.constant(np.ones((32, 1), np.float32))
    y = op.matmul(x, op.multiply(weight, scale), False, True)
    packed = ov.op.Constant(ov.Type.u4, ov.Shape([8, 2, 16]), [1] * 256)
    zeros = ov.op.Constant(ov.Type.u4, ov.Shape([8, 2, 1]), [8] * 16)
    shifted = op.subtract(op.convert(packed, "f16"), op.convert(zeros, "f16"))
    grouped = op.multiply(shifted, op.constant(np.ones((8, 2, 1), np.float16)))
    flat = op.reshape(grouped, op.constant(np.array([8, 32])), False)
    return ov.Model(
        [op.matmul(op.relu(y), op.convert(flat, "f32"), False, True)], [x], "compressed"
    )


def build_quantized_model() -> ov.Model:
    """A convolution whose data and weights are quantized to 256 and 255 levels."""
    x = op.parameter([1, 3, 8, 8], np.float32, name="x")
    bounds = [op.constant(np.float32(value)) for value in (0, 1, -1)]
    data = op.fake_quantize(x, bounds[0], bounds[1], bounds[0], bounds[1], 256)
    weight = op.constant(np.ones((4, 3, 3, 3), np.float32))
    steps = op.fake_quantize(weight, bounds[2], bounds[1], bounds[2], bounds[1], 255)
    out = op.convolution(data, steps, [1, 1], [1, 1], [1, 1], [1, 1])
    return ov.Model([op.relu(out)], [x], "quantized")


def build_iterated_model() -> ov.Model:
    """A TensorIterator: an LSTMCell of 6 units over five steps."""
    outer = [
        op.parameter(shape, np.float32, name=name)
        for name, shape in (("x", [2, 5, 4]), ("h", [2, 6]), ("c", [2, 6]))
    ]
    x, h, c = (op.parameter(shape, np.float32) for shape in ([2, 1, 4], [2, 6], [2, 6]))
    weights = [op.constant(np.ones(shape, np.float32)) for shape in ((24, 4), (24, 6), (24,))]
    axis = op.constant(np.array([1]))
    cell = op.lstm_cell(op.squeeze(x, axis), h, c, *weights, 6)
    hidden, state = op.result(cell.output(0)), op.result(cell.output(1))
    each = op.result(op.unsqueeze(cell.output(0), axis))
    loop = op.tensor_iterator()
    loop.set_body(ov.Model([hidden, state, each], [x, h, c], "body"))
    loop.set_sliced_input(x, outer[0].output(0), 0, 1, 1, -1, 1)
    loop.set_merged_input(h, outer[1].output(0), hidden.output(0))
    loop.set_merged_input(c, outer[2].output(0), state.output(0))
    results = [loop.get_concatenated_slices(each.output(0), 0, 1, 1, -1, 1)]
    results.append(loop.get_iter_value(state.output(0), -1))
    return ov.Model([op.result(value) for value in results], outer, "iterated")


def build_cached_model() -> ov.Model:
    """A product with keys that a variable keeps, which begins empty."""
    from openvino.op.util import Variable, VariableInfo

    x = op.parameter([1, -1, 8], np.float32, name="x")
    info = VariableInfo()
    info.data_shape, info.data_type, info.variable_id = (
        ov.PartialShape([1, -1, 8]),
        ov.Type.f32,
        "keys",
    )
    variable = Variable(info)
    empty = op.constant(np.zeros((1, 0, 8), np.float32))
    before = op.read_value(empty, variable)
    keys = op.concat(
        [before, op.matmul(x, op.constant(np.ones((8, 8), np.float32)), False, False)], 1
    )
    scores = op.matmul(x, keys, False, True)
    return ov.Model([op.result(scores)], [op.assign(keys, variable)], [x], "cached")


def build_selected_model() -> ov.Model:
    """Boxes that NonMaxSuppression keeps, behind a product."""
    boxes = op.parameter([1, 10, 4], np.float32, name="boxes")
    scores = op.parameter([1, 3, 10], np.float32, name="scores")
    moved = op.matmul(boxes, op.constant(np.eye(4, dtype=np.float32)), False, False)
    limits = [op.constant(np.int64(5)), op.constant(np.float32(0.5)), op.constant(np.float32(0.1))]
    kept = op.non_max_suppression(moved, scores, *limits)
    return ov.Model([op.result(kept.output(0))], [boxes, scores], "selected")


def main() -> None:
    """Write all files."""
    torch.manual_seed(0)
    FILES.mkdir(exist_ok=True)

    def convert(model, example, shape=None):
        more = {} if shape is None else {"input": [shape]}
        return ov.convert_model(model.eval(), example_input=example, **more)

    image = torch.zeros(1, 3, 16, 16)
    save("convnet", convert(ConvNet(), image, [1, 3, 16, 16]))
    save("convnet_half", convert(ConvNet(), image, [1, 3, 16, 16]), half=True)
    save("attention", convert(Attention(), torch.zeros(1, 5, dtype=torch.long)))
    save("recurrent", convert(Recurrent(), torch.zeros(2, 5, 4)))
    save("upsampler", convert(Upsampler(), image, [1, 3, 8, 8]))
    save("repeated", convert(torch.jit.script(Repeated()), torch.zeros(2, 4), [2, 4]))
    for build in (
        build_compressed_model,
        build_quantized_model,
        build_iterated_model,
        build_cached_model,
        build_selected_model,
    ):
        save(build.__name__.removeprefix("build_").removesuffix("_model"), build())


if __name__ == "__main__":
    main()
