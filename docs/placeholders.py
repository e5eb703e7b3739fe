"""The words that the list of errors has for a value that only a run knows."""

import ast

# Functions that are not followed, and variables: a word says more than their texts.
OPAQUE_NAMES = {
    "class_name": "name of the class",
    "dtype": "type",
    "head_size": "number",
    "kept": "precision",
    "position": "number",
    "provided_count": "number",
    "root_name": "name of the element",
    "where": "place",
}
OPAQUE = {
    "_budget_heading": "heading of the table of the budget",
    "brief_error_text": "text of the error",
    "error_location": "place in the code",
    "error_words": "class and text of the error",
    "flag": "option",
    "flag_of_field": "option",
    "onnx_node_label": "node",
    "shape_text": "shape",
    "short_error_text": "text of the error",
}
_WORDS = {
    **OPAQUE,
    **OPAQUE_NAMES,
    "again": "second error",
    "around": "text of the error",
    "as_stored": "precision",
    "asked": "what the model does with values",
    "bearers": "name of a device",
    "before": "revision",
    "beneath": "paths",
    "bound": "other size",
    "by_name": "names",
    "cc": "compiler",
    "choice": "given branch",
    "chosen": "name",
    "complaint": "text of the error",
    "converted_by": "name of a converter",
    "counted": "name of its rule",
    "declared": "formula of the tool",
    "derivative_function": "name of the function",
    "dict": "names",
    "dim_param": "name of the dimension",
    "dims": "shape",
    "distribution": "package",
    "double": "name",
    "ends": "lengths",
    "error": "text of the error",
    "every": "names of precisions",
    "families": "names of families",
    "fields": "value",
    "filename": "path",
    "fitting": "options",
    "fixed": "shape",
    "flags": "options",
    "floats": "name of an input",
    "full": "number",
    "given": "names of precisions",
    "heads": "names of columns",
    "head": "name of the column",
    "hollow": "name of a weight",
    "how": "reason",
    "ids": "names of devices",
    "in_python": "value",
    "in_toml": "value",
    "indices": "path",
    "installs": "command",
    "known": "known names",
    "least": "number of bytes",
    "lost": "what is lost",
    "max_proposed": "number",
    "meant": "name of a library",
    "merged": "number of pixels",
    "name_in_message": "name of the option",
    "named": "names",
    "nbytes": "number of bytes",
    "near": "similar names",
    "hint": "hint of the underlying error",
    "needed": "what the model does with values",
    "op": "operator",
    "op_type": "operator",
    "order": "text",
    "os": "number",
    "others": "names",
    "own": "names of layers",
    "own_name": "name",
    "parts": "name",
    "pieces": "lengths",
    "pickles": "description of the format",
    "points": "names of tools",
    "quoted": "last lines of the output",
    "read": "number",
    "requested": "names",
    "returncode": "number",
    "sees": "module or function",
    "set": "packages",
    "shown": "names and shapes",
    "signs": "known signs",
    "span": "versions",
    "stated": "options with values",
    "stderr": "text of the error",
    "stored": "type",
    "stray": "name",
    "strays": "name",
    "strerror": "reason",
    "stuck": "property",
    "taken": "names of parameters",
    "tag": "number",
    "title": "framework",
    "tried": "names of tools",
    "tuple": "shape",
    "twice": "name",
    "unknown": "name",
    "what": "problem",
    "who": "name of the node",
    "why": "reason",
    "wide": "number",
    "wire": "number",
    "wrong": "problem",
    "amount": "number",
    "at": "number",
    "back": "command",
    "batches": "text",
    "bench": "path",
    "both": "range",
    "call": "place of the call",
    "content": "kind of the page",
    "copy": "path",
    "count": "number",
    "doubt": "value",
    "doubts": "known values",
    "dtype": "type",
    "edition": "version",
    "error_text": "text of the error",
    "extra": "name of an extra",
    "first": "number",
    "generate": "number",
    "index": "path",
    "installed": "version",
    "json": "text",
    "keys": "known names",
    "kinds": "frameworks",
    "label": "device",
    "labels": "names of devices",
    "last": "number",
    "lines": "list of errors",
    "list_in_words": "frameworks",
    "location": "module or file",
    "match": "text",
    "matrices": "number",
    "measured": "option",
    "message": "message of the underlying error",
    "min": "number",
    "missing_revision_remedy": "command",
    "of": "kind",
    "origin": "place",
    "owner": "place",
    "plugins": "package",
    "product_difference_sentence": "difference",
    "prompt": "number",
    "provided": "options",
    "remote": "name of the remote",
    "rows": "number",
    "seconds": "number",
    "settings": "reason",
    "sum": "number",
    "tensors": "names of inputs",
    "text_for_messages": "formula",
    "unreadable_baseline_reason": "text of the error",
    "verified": "versions",
    "word": "name",
}


def placeholder(node: ast.expr) -> str:
    """Return the words for an expression: the name of the variable, the field or the function."""
    if isinstance(node, ast.Attribute) and node.attr in ("message", "hint"):
        return f"{{{node.attr} of the underlying error}}"
    return f"{{{_words(_value_name(node))}}}"


def _words(name: str) -> str:
    """Return a name of the source in words, without underscores."""
    known = _WORDS.get(name.strip("_").lower())
    plain = " ".join(name.strip("_").split("_"))
    return known or (plain.lower() if plain.isupper() else plain)


def _value_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        if node.attr == "__name__":
            return _class_or_function_name(node.value)
        return node.attr
    if isinstance(node, ast.Call):
        return _call_name(node)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _value_name(node.generators[0].iter)
    if isinstance(node, ast.BinOp):
        return _value_name(node.left)
    if isinstance(node, ast.Starred | ast.Subscript):
        return _value_name(node.value)
    if isinstance(node, ast.NamedExpr):
        return _value_name(node.target)
    return "value"


def _class_or_function_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call) and node.args:
        name = _value_name(node.args[0]).strip("_")
        return f"class of the {'error' if name in ('error', 'problem') else name}"
    return f"name of the {_value_name(node).strip('_')}"


_NUMBERS = {
    "cache_specs": "tensors",
    "candidates": "devices",
    "dims": "dimensions",
    "differs": "products",
    "heads": "columns",
    "is_used": "tensors",
    "meant": "libraries",
    "names": "inputs",
    "shape": "dimensions",
    "sizes": "dimensions",
    "value": "digits",
}


def _number_words(name: str) -> str:
    """Return the words for the length of a list."""
    return f"number of {_NUMBERS.get(name, name)}"


def _call_name(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        if node.func.attr == "join" and node.args:
            return _value_name(node.args[0])
        if not isinstance(node.func.value, ast.Constant):
            return _value_name(node.func.value)
    name = _value_name(node.func)
    if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
        return str(node.args[1].value)
    if name == "len" and node.args:
        return _number_words(_value_name(node.args[0]))
    if name in ("map", "sorted", "dict", "str", "float", "int", "repr", "next", "iter"):
        return _value_name(node.args[-1]) if node.args else "value"
    return name
