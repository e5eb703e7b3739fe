"""What a file probe is: a graph in ONNX's own text form."""

from pathlib import Path

import msgspec


class FileProbe(msgspec.Struct, frozen=True):
    """A named graph (and functions behind it), and which of its inputs are stored in the file.

    `macs` is what a hand calculation gives, by the comment or the operator's own formula.
    """

    name: str
    text: str
    macs: int
    stored: tuple[str, ...] = ()
    opset: int = 18

    def write(self, folder: Path) -> Path:
        """The file in this folder; what is stored is zeros."""
        import onnx

        imports = f'"": {self.opset}, "com.microsoft": 1, "local": 1'
        model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {self.text}")
        inputs = {value.name: value for value in model.graph.input}
        for name in self.stored:
            tensor = inputs[name].type.tensor_type
            dims = [dim.dim_value for dim in tensor.shape.dim]
            size = _width(tensor.elem_type)
            for dim in dims:
                size *= dim
            zeros = onnx.helper.make_tensor(name, tensor.elem_type, dims, bytes(size), raw=True)
            model.graph.initializer.append(zeros)
            model.graph.input.remove(inputs[name])
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path


def _width(element_type: int) -> int:
    """Bytes of an element."""
    import onnx

    return int(onnx.helper.tensor_dtype_to_np_dtype(element_type).itemsize)
