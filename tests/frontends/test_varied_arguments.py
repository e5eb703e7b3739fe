"""Each plain argument of an operator that torchlib translates is varied by calls that tell.

A form that ignored an argument would compute by one value of it, whatever that is. For each value
that an argument has in the calls, another call has another value and gives something else by the
first one: such a form fails there, as all calls are run (test_translations.py).
"""

import warnings

import pytest
from torch.utils._pytree import tree_leaves

from crossflops.frontends.pytorch.convert.ignored_arguments import effect_of_ignored_argument
from tests.frontends.operator_calls import Calls, operator
from tests.frontends.test_translations import LINES, translations
from tests.models import torch

pytestmark = pytest.mark.tools

# Why an argument is not varied: by the operator, all of its arguments, or some by their names.
DRAWN = "the results are drawn: no two runs agree"
EMPTY = "the result has no values yet"
OPAQUE = "a node of the domain torch.ops, which has the argument (tests/export)"
UNCALLED = "no program has it: torch.export refuses it, or leaves its functional or usual form"
PLAIN = "numbers of Python in, or out, and no tensor"
STATISTICS = "it is for the running statistics, which are no result here"
NO_KERNEL = "there is no such kernel on a CPU"
UNUSED = "the results are there in any case"
PERMITTED = "it allows other shapes, and changes nothing for those that go without"
ORDER = "an order that PyTorch leaves open"
NAMED = "another value than the default makes the node opaque"
UNVARIED = {
    "aten._embedding_bag.default": OPAQUE,
    "aten._embedding_bag_forward_only.default": OPAQUE,
    "aten.embedding_bag.default": OPAQUE,
    "aten.embedding_bag.padding_idx": OPAQUE,
    "aten._grouped_mm.default": OPAQUE,
    "aten.bernoulli.p": DRAWN,
    "aten.dropout.default": DRAWN,
    "aten.native_dropout.default": DRAWN,
    "aten.multinomial.default": DRAWN,
    "aten.normal.Tensor_float": DRAWN,
    "aten.normal.float_Tensor": DRAWN,
    "aten.normal.float_float": DRAWN,
    "aten.normal_functional.default": DRAWN,
    "aten.rand.default": DRAWN,
    "aten.rand_like.default": DRAWN,
    "aten.randint.default": DRAWN,
    "aten.randint.low": DRAWN,
    "aten.randint_like.default": DRAWN,
    "aten.randint_like.low_dtype": DRAWN,
    "aten.randn.default": DRAWN,
    "aten.randn_like.default": DRAWN,
    "aten.lstm.input": {"dropout": DRAWN, "train": DRAWN},
    "aten.gru.input": {"dropout": DRAWN, "train": DRAWN},
    "aten.scaled_dot_product_attention.default": {
        "dropout_p": DRAWN,
        "enable_gqa": PERMITTED,
    },
    "aten._scaled_dot_product_flash_attention_for_cpu.default": {"dropout_p": DRAWN},
    "aten._scaled_dot_product_efficient_attention.default": NO_KERNEL,
    "aten._scaled_dot_product_flash_attention.default": NO_KERNEL,
    "aten._softmax.default": {"half_to_float": NO_KERNEL},
    "aten._log_softmax.default": {"half_to_float": NO_KERNEL},
    "aten.empty.memory_format": EMPTY,
    "aten.empty_like.default": EMPTY,
    "aten.empty_strided.default": EMPTY,
    "aten.new_empty.default": EMPTY,
    "aten.new_empty_strided.default": EMPTY,
    "aten._native_batch_norm_legit.default": UNCALLED,
    "aten._native_batch_norm_legit.no_stats": {"momentum": STATISTICS},
    "aten._native_batch_norm_legit_no_training.default": {"momentum": STATISTICS},
    "aten.native_batch_norm.default": {"momentum": STATISTICS},
    "aten.instance_norm.default": {"momentum": STATISTICS},
    "aten.eq.default": PLAIN,
    "aten.ne.default": PLAIN,
    "aten.mul.default": PLAIN,
    "aten.sym_size.int": PLAIN,
    "aten.allclose.default": PLAIN,
    "aten.tensor.bool": PLAIN,
    "aten.tensor.float": PLAIN,
    "aten.tensor.int": PLAIN,
    "aten._unique.default": {"return_inverse": UNUSED},
    "aten._unique2.default": {"return_inverse": UNUSED, "return_counts": UNUSED},
    "aten.unique_dim.default": {"return_inverse": UNUSED, "return_counts": UNUSED},
    "aten.unique_consecutive.default": {"dim": NAMED},
    "aten.topk.default": {"sorted": ORDER},
    "aten._upsample_bicubic2d_aa.default": {"align_corners": NAMED},
    "aten._upsample_bilinear2d_aa.default": {"align_corners": NAMED},
    "onnx_symbolic._symbolic.default": UNCALLED,
    "onnx_symbolic._symbolic_multi_out.default": UNCALLED,
    "prims.broadcast_in_dim.default": UNCALLED,
    "prims.resize.default": UNCALLED,
    "prims.squeeze.default": UNCALLED,
    "prims.transpose.default": UNCALLED,
    "prims.sum.default": {"output_dtype": UNCALLED},
    "prims.var.default": {"output_dtype": UNCALLED},
    "torchvision.nms.default": "a library's operator, whose kernel is not everywhere",
}


class Call:
    """A call of the file, which can be made again with another value of an argument."""

    def __init__(self, line):
        self.operator, calls = operator(line), Calls([line])
        schema = self.operator._schema.arguments
        self.given = {}

        def note(*args, **kwargs):
            self.given = dict(zip((row.name for row in schema), args, strict=False)) | kwargs
            return args  # of which the line may take one

        names = {"given": calls.tensors, "torch": torch, "inf": float("inf"), "operator": note}
        eval(calls.calls[0][1], names)
        self.own_result = self.run()

    def value(self, argument):
        """Return what the call gives for an argument, or its default."""
        return self.given.get(argument.name, argument.default_value)

    def run(self, name="", value=None):
        """Return the results, or the error; what is written into an operand is a copy."""
        values, args, kwargs = dict(self.given), [], {}
        if name:
            values[name] = value
        for argument in self.operator._schema.arguments:
            value = values.get(argument.name, argument.default_value)
            value = value.clone() if isinstance(value, torch.Tensor) else value
            if not argument.kwarg_only:
                args.append(value)
            elif argument.name in values:
                kwargs[argument.name] = value
        torch.manual_seed(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return tree_leaves(self.operator(*args, **kwargs))
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            return [type(error)]

    def changes_by(self, argument, value):
        """Whether another value of an argument gives something else."""
        other = self.run(argument.name, value)
        pairs = zip(self.own_result, other, strict=False)
        return len(other) != len(self.own_result) or not all(is_same(*pair) for pair in pairs)


def is_same(first, second):
    """Whether two results are equal, in type and shape as well."""
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return first is second
    alike = first.dtype == second.dtype and first.shape == second.shape
    return alike and torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))


def why_untold(argument, calls):
    """Return by which value of an argument all calls would pass, "" where there is none."""
    values = {repr(call.value(argument)): call.value(argument) for call in calls}
    for written, value in values.items():
        others = (call for call in calls if repr(call.value(argument)) != written)
        if not any(call.changes_by(argument, value) for call in others):
            return f"{calls[0].operator} {argument.name}: every call passes by {written}"
    return ""


def reason(target, argument):
    """Return why an argument is not varied, None where it must be."""
    listed = UNVARIED.get(str(target))
    listed = listed.get(argument.name) if isinstance(listed, dict) else listed
    return listed or effect_of_ignored_argument(str(target), argument.name)


def plain_arguments():
    """Each operator that is translated with each of its arguments that are no tensors."""
    for target in {target: None for target, _ in translations()}:
        for argument in target._schema.arguments:
            if "Tensor" not in str(argument.type):
                yield target, argument


def test_each_plain_argument_is_varied_or_reviewed():
    """What a newer PyTorch brings is in neither list, and fails here by its name."""
    by_operator, untold = {}, []
    with torch.no_grad():
        for line in LINES:
            by_operator.setdefault(operator(line), []).append(Call(line))
        for target, argument in plain_arguments():
            if reason(target, argument) is not None:
                continue
            calls = by_operator.get(target, [])
            why = why_untold(argument, calls) if calls else f"{target} {argument.name}: no call"
            untold += [why] if why else []
    assert untold == []


def test_the_list_names_what_is_there():
    """Each operator and argument of it, and none that the calls tell of in any case."""
    there = {(str(target), argument.name) for target, argument in plain_arguments()}
    operators = {target for target, _ in there}
    for target, names in UNVARIED.items():
        assert target in operators
        assert not isinstance(names, dict) or {(target, name) for name in names} <= there


def test_a_call_that_ignores_its_argument_is_told():
    """Two calls whose results are one by either value: a softmax of one column."""
    lines = ["aten.softmax.int(f32[1,1], 0)", "aten.softmax.int(f32[1,1], 1)"]
    calls = [Call(line) for line in lines]
    (_, dim, _) = calls[0].operator._schema.arguments
    assert why_untold(dim, calls) == "aten.softmax.int dim: every call passes by 0"
    apart = [Call(line.replace("1,1", "2,3")) for line in lines]
    assert why_untold(dim, apart) == ""
    assert why_untold(dim, apart[:1]) != ""
