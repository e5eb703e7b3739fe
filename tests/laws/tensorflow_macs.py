"""MACs of a TensorFlow graph, counted over its operations: nothing of crossflops."""

from math import prod


def needed(outputs):
    """The operations on which these tensors depend, in their graph."""
    known, todo = {}, [tensor.op for tensor in outputs]
    while todo:
        op = todo.pop()
        if op.name not in known:
            known[op.name] = op
            todo += [tensor.op for tensor in op.inputs]
    return list(known.values())


def executed(ops, trips):
    """The products of these operations; all loops run as often."""
    used = {tensor.name for op in ops for tensor in op.inputs}
    return sum(products(op, used, trips) for op in ops)


def products(op, used, trips):
    """m x k x n of a product; y x k x c of a convolution, and of both its gradients."""
    kind = op.type
    if kind == "MatMul" or kind.startswith("BatchMatMul"):
        turned = op.get_attr("transpose_a" if kind == "MatMul" else "adj_x")
        depth = op.inputs[0].shape[-2 if turned else -1]
        return depth * op.outputs[0].shape.num_elements()
    if kind == "Einsum":
        terms = op.get_attr("equation").decode().partition("->")[0].split(",")
        sizes = {}
        for term, tensor in zip(terms, op.inputs, strict=True):
            sizes |= zip(term, tensor.shape.as_list(), strict=True)
        return prod(sizes.values())
    if kind.startswith(("Conv2D", "DepthwiseConv2dNative")):
        kernel, result = op.inputs[1].shape, op.outputs[0].shape
        if kind.endswith("Input"):
            result = op.inputs[2].shape
        elif kind.endswith("Filter"):
            kernel, result = op.outputs[0].shape, op.inputs[2].shape
        depth = 1 if kind.startswith("Depthwise") else kernel[2]
        return result.num_elements() * kernel[0] * kernel[1] * depth
    if kind in ("While", "StatelessWhile"):
        body = op.graph._get_function(op.get_attr("body").name).graph
        return trips * executed(needed(body.outputs), trips)
    if kind in ("PartitionedCall", "StatefulPartitionedCall"):
        body = op.graph._get_function(op.get_attr("f").name).graph
        pairs = zip(body.outputs, op.outputs, strict=True)
        return executed(needed([own for own, outer in pairs if outer.name in used]), trips)
    return 0
