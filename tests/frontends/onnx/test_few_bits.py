"""Quantizers of few bits whose results are real: products of them run in these bits."""

import onnx
import pytest

import crossflops
from tests.onnx_files import saved

DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
CONSTANTS = "<float s = {0.1}, float z = {0.0}, float a = {4.0}, float b = {2.0}, float h = {2.5}>"


def precisions(folder, body, domain=DOMAINS[0], inputs="float[4,16] x, float[16,8] w"):
    """MACs by precision of a file, and those that are expected of any."""
    text = f"""<ir_version: 8, opset_import: ["": 17, "{domain}": 1]>
    g ({inputs}) => (y) {CONSTANTS} {{ {body} }}"""
    report = crossflops.count(
        saved(folder, onnx.parser.parse_model(text.replace("Q.", f"{domain}.")))
    )
    return dict(report.macs_by_precision)


MACS = 4 * 16 * 8
PRODUCT = "y = MatMul (q, v)"
CASES = [
    ("q = Q.Quant (x, s, z, a) v = Q.Quant (w, s, z, b)", "int4xint2"),
    ("q = Q.Quant (x, s, z, a) v = Q.IntQuant (w, s, z, a)", "int4"),
    ("q = Q.Quant (x, s, z, a) v = Q.BipolarQuant (w, s)", "int4xint1"),
    ("q = Q.Quant (x, s, z, a) v = Identity (w)", "int4xfloat32"),
    ("p = Q.Quant (x, s, z, a) q = Q.Trunc (p, s, z, a, b) v = Q.Quant (w, s, z, b)", "int2"),
    ("p = Q.Quant (x, s, z, a) q = Identity (p) v = Q.Quant (w, s, z, a)", "int4"),
    # what a node computes in floats is a float, and bits that are no whole number say nothing
    ("p = Q.Quant (x, s, z, a) q = Relu (p) v = Q.Quant (w, s, z, a)", "float32xint4"),
    ("q = Q.Quant (x, s, z, h) v = Q.Quant (w, s, z, a)", "float32xint4"),
]


@pytest.mark.parametrize(("body", "precision"), CASES)
def test_a_product_runs_in_the_bits_of_its_operands(body, precision, tmp_path):
    """4x16 times 16x8: the name of the precision, data first."""
    assert precisions(tmp_path, f"{body} {PRODUCT}") == {precision: MACS}


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_dialect_has_them(domain, tmp_path):
    """QONNX, FINN and Brevitas write the same operators in domains of their own."""
    body = f"q = Q.Quant (x, s, z, a) v = Q.Quant (w, s, z, a) {PRODUCT}"
    assert precisions(tmp_path, body, domain) == {"int4": MACS}


@pytest.mark.parametrize(
    ("named", "precision"),
    [("UINT4", "int4"), ("INT2", "int2"), ("BIPOLAR", "int1"), ("FLOAT32", "float32")],
)
def test_thresholds_say_the_type_of_their_result(named, precision, tmp_path):
    """MultiThreshold names it in an attribute."""
    body = f"""q = Q.MultiThreshold <out_dtype = "{named}"> (x, t)
    v = Q.MultiThreshold <out_dtype = "{named}"> (w, u) {PRODUCT}"""
    inputs = "float[4,16] x, float[16,8] w, float[16,15] t, float[8,15] u"
    assert precisions(tmp_path, body, inputs=inputs) == {precision: MACS}
