"""The name that a node had before an optimizer or a quantizer replaced it by another."""

import re

# onnxruntime's fusions: "/MatMulAddFusion", "/MatMulScaleFusion//MatmulTransposeFusion/", and a
# number where that name is taken. A name of PyTorch's exporter ends in an operator.
_FUSIONS = re.compile(r"(/+[A-Z]\w*Fusion)+/*((_token)?_\d+)?(?=(_MatMul)?(_quant)?$|_Add$)")
# Of quantize_static and quantize_dynamic, and of MatMulNBitsQuantizer.
_QUANTIZERS = re.compile(r"(_MatMul)?_quant$|_MatMul$|(_matmul)?_Q[248]$")


def without_fusions(name: str) -> str:
    """Return the name of a node without the suffixes that onnxruntime's fusions add.

    >>> without_fusions("/ff/ff.0/MatMul/MatMulAddFusion_quant")
    '/ff/ff.0/MatMul_quant'
    """
    return _FUSIONS.sub("", name) if "Fusion" in name else name


def original_name(name: str) -> str:
    """Return the name of a node without the suffixes that onnxruntime's fusions and quantizers
    add.

    >>> original_name("node_mm/MatMulScaleFusion//MatmulTransposeFusion/")
    'node_mm'
    >>> original_name("/ff/ff.0/MatMul/MatMulAddFusion_MatMul_quant")
    '/ff/ff.0/MatMul'
    >>> original_name("node_mm_matmul_Q4")
    'node_mm'
    """
    return _QUANTIZERS.sub("", without_fusions(name))
