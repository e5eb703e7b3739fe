"""Adapters that count by PyTorch's own FlopCounterMode, and then misbehave in one way each."""

import os
import time
from math import prod
from pathlib import Path

from crossflops.errors import MissingExtraError
from crossflops.ir.profile import Entry, Profile
from crossflops.plugins.adapter import is_module, under


class Honest:
    """Answers with what FlopCounterMode counts, so its convention predicts it."""

    name = "honest"
    convention = "torch-flop-counter"
    distribution = "torch"
    shift = 0

    def version(self):
        return "2.13.0"

    def load(self):
        pass

    def accepts(self, model):
        return is_module(model)

    def profile(self, model, args, kwargs, setting):
        from torch.utils.flop_counter import FlopCounterMode

        with under(setting, model), FlopCounterMode(display=False) as counter:
            model(*args, **kwargs)
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=counter.get_total_flops() + self.shift,
            printed_as="FLOPs",
        )


class Shifted(Honest):
    """Off by one."""

    name = "shifted"
    shift = 1


class Raises(Honest):
    """Has no rule for something."""

    name = "raises"

    def profile(self, model, args, kwargs, setting):
        raise ValueError("no rule for Foo")


class Crashes(Honest):
    """Takes its process along."""

    name = "crashes"

    def profile(self, model, args, kwargs, setting):
        os._exit(7)


class Hangs(Honest):
    """Never answers."""

    name = "hangs"

    def profile(self, model, args, kwargs, setting):
        time.sleep(600)


class Meddles(Honest):
    """Changes PyTorch and the model for the whole process, and answers with nothing."""

    name = "meddles"

    def profile(self, model, args, kwargs, setting):
        import torch

        torch.manual_seed(7)
        torch.set_default_dtype(torch.float64)
        torch.nn.functional.linear = None
        torch.nn.Linear.forward = None
        model.double().train()
        return Profile(
            tool=self.name, version=self.version(), setting=setting, total=0, printed_as="FLOPs"
        )


class Careful(Honest):
    """Counts as Honest does, after another tool had time to meddle, and looks at what it left."""

    name = "careful"

    def profile(self, model, args, kwargs, setting):
        import torch

        time.sleep(1)
        assert torch.get_default_dtype() is torch.float32
        assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
        assert torch.initial_seed() != 7
        return super().profile(model, args, kwargs, setting)


class Absent(Honest):
    """A plugin without its tool."""

    name = "absent"

    def version(self):
        raise MissingExtraError("the tool is not installed", "pip install the-tool")


class Broken(Honest):
    """A plugin that fails when it is asked for its version."""

    name = "broken"

    def version(self):
        raise KeyError("version")


class Unheard(Honest):
    """A plugin whose convention nobody wrote down."""

    name = "unheard"
    convention = "unheard"


class Eval(Honest):
    """Counts like thop 0.1.1 on linear layers alone, in evaluation mode whatever is asked."""

    name = "eval"
    convention = "thop"

    def version(self):
        return "0.1.1"

    def profile(self, model, args, kwargs, setting):
        model.eval()
        result = []
        for module in model.modules():
            if hasattr(module, "in_features"):
                module.register_forward_hook(
                    lambda m, _, y: result.append(m.in_features * y.numel())
                )
        model(*args, **kwargs)
        return Profile(
            tool=self.name, version="0.1.1", setting=setting, total=sum(result), printed_as="MACs"
        )


class Reader(Honest):
    """Counts the elements that the Relu nodes of a file give, as elementwise-1 does."""

    name = "reader"
    convention = "elementwise-1"

    def version(self):
        return "1"

    def accepts(self, model):
        return isinstance(model, Path)

    def profile(self, model, args, kwargs, setting):
        import onnx

        graph = onnx.shape_inference.infer_shapes(onnx.load(model), strict_mode=True).graph
        known = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        sizes = {
            node.name or f"{node.op_type}_{number}": prod(
                dim.dim_value for dim in known[node.output[0]].tensor_type.shape.dim
            )
            for number, node in enumerate(graph.node)
            if node.op_type == "Relu"
        }
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=sum(sizes.values()),
            printed_as="elements",
            entries=tuple(Entry(name, size) for name, size in sizes.items()),
        )
