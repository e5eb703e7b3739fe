"""The name that a node had before an optimizer or a quantizer replaced it by another."""

import re

# onnxruntime's fusions: "/MatMulAddFusion", "/MatMulScaleFusion//MatmulTransposeFusion/", and a
# number where that name is taken. A name of PyTorch's exporter ends in an operator.
_FUSIONS = re.compile(r"(/+[A-Z]\w*Fusion)+/*((_token)?_\d+)?(?=(_MatMul)?(_quant)?$|_Add$)")
# Of quantize_static and quantize_dynamic, and of MatMulNBitsQuantizer.
_QUANTIZERS = re.compile(r"(_MatMul)?_quant$|_MatMul$|(_matmul)?_Q[248]$")


def without_fusion_suffixes(name: str) -> str:
    """Return the name of a node without the suffixes that onnxruntime's fusions add.

    >>> without_fusion_suffixes("/ff/ff.0/MatMul/MatMulAddFusion_quant")
    '/ff/ff.0/MatMul_quant'
    """
    return _FUSIONS.sub("", name) if "Fusion" in name else name


def name_before_fusion_and_quantization(name: str) -> str:
    """Return the name of a node without the suffixes that onnxruntime's fusions and quantizers
    add.

    >>> name_before_fusion_and_quantization("node_mm/MatMulScaleFusion//MatmulTransposeFusion/")
    'node_mm'
    >>> name_before_fusion_and_quantization("/ff/ff.0/MatMul/MatMulAddFusion_MatMul_quant")
    '/ff/ff.0/MatMul'
    >>> name_before_fusion_and_quantization("node_mm_matmul_Q4")
    'node_mm'
    """
    return _QUANTIZERS.sub("", without_fusion_suffixes(name))
