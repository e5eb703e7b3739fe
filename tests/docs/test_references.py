"""Names in backticks, in pages, docstrings and comments, are names that the repository has."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "crossflops"
FOLDERS = ("action", "benchmarks", "crossflops", "docs", "examples", "plugins", "release", "tests")
LEFT_OUT = ("CHANGELOG.md", "docs/adr", "docs/style.md")  # names of their day, and invented ones
TICKED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
WORD = re.compile(r"[A-Za-z_]\w*")
MEMBER = re.compile(r"(?:crossflops\.(?:\w+\.)*)?(\w+)\.(\w+)(?:\(.*\))?")
FILE = re.compile(r"[\w-]+/[\w/-]+\.(?:py|md)")
PAIR = re.compile(r"(?=\b(\w+\.\w+))")
SUFFIXES = {"ini", "json", "md", "onnx", "py", "toml", "yml"}
COMMENT = re.compile(r"(?:^|(?<=\s))# .*$")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)

# Names of other programs that the text mentions and no code here uses.
FOREIGN = {
    "_prepare_cache_for_generation",  # of transformers
    "GraphNodeData",
    "PrecisionConfig",
    "WRAPPER_MODULES",
    "X_expanded",
    "_DEFAULT_SUPPORTED_OPS",
    "_EvalCacheLoader",
    "_FunctionCounter",
    "_SHAPE_TENSORS",
    "_accumulate_fp16",
    "_broadcast_shape",
    "_count_flops",
    "_fill_missing_graph_shape",
    "_get_dtype_plan",
    "_graph_mode_decorator",
    "_max_shape",
    "_register_mutation_version_bump",
    "add_hooks",
    "add_missing_container_layers",
    "calculate_flops",
    "count_params",
    "distribute_module",
    "fish_source",
    "get_kernel_size",
    "get_model_profile",
    "get_param_count",
    "include_backPropagation",
    "is_leaf_module",
    "lt_to",
    "model_profile",
    "moe_helper",
    "nested_list_size",
    "num_bits",
    "saveExtraArgs",
    "sliding_window_overlay",
    "to_thread",
    "x_i",
    "zsh_source",
}

# Members of other packages, whose module or class has the name of one of crossflops.
OTHER_MEMBERS = {"Layer.__call__", "Module.to", "module.__call__"}


@cache
def files(suffix):
    """The files of the repository with one suffix, without what builds leave behind."""
    found = [*ROOT.glob(f"*{suffix}")]
    for folder in FOLDERS:
        found += (ROOT / folder).rglob(f"*{suffix}")
    left_out = {".tox", ".venv", "build", "node_modules", "__pycache__"}
    return sorted(path for path in found if not left_out & {*path.relative_to(ROOT).parts})


class Parts(NamedTuple):
    """A Python file: docstrings and comments by lines, words and pairs `a.b` of its code."""

    prose: dict[int, str]
    words: set[str]
    pairs: set[str]
    members: dict[str, set[str]]  # of each class, and under "" of the module


def statements(node, owners=()):
    """Every statement, and the classes around it; "" where the module itself has it."""
    yield node, owners
    inner = ("",) if isinstance(node, ast.Module) else owners
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        inner = tuple(name for name in owners if name)
    if isinstance(node, ast.ClassDef):
        inner = (*inner, node.name)
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                yield from statements(child, inner)


@cache
def parts(path):
    """Read a file once, docstrings and comments apart from code."""
    text = path.read_text("utf-8")
    lines, prose = text.splitlines(), {}
    members = defaultdict(set)
    for node, owner in statements(ast.parse(text)):
        for name in owner:
            members[name] |= bound(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                prose[first.lineno] = str(first.value.value)
                for number in range(first.lineno - 1, first.end_lineno):
                    lines[number] = ""
    for number, line in enumerate(lines):
        if comment := COMMENT.search(line):
            prose[number + 1] = comment[0]
            lines[number] = line[: comment.start()]
    code = "\n".join(lines)
    return Parts(prose, set(WORD.findall(code)), set(PAIR.findall(code)), members)


@cache
def pairs():
    """Every `holder.name` in the code of the repository, in its strings too, and in blocks."""
    found = set().union(*(parts(path).pairs for path in files(".py")))
    for path in (*files(".md"), *files(".toml"), *files(".yml")):
        text = path.read_text("utf-8")
        found.update(PAIR.findall("".join(FENCE.findall(text)) if path.suffix == ".md" else text))
    return found


def prose():
    """Every piece of text that engineers read: where it stands, and the names in backticks."""
    for path in files(".py"):
        for line, text in parts(path).prose.items():
            yield f"{path.relative_to(ROOT)}:{line}", TICKED.findall(text)
    for path in files(".md"):
        if not str(path.relative_to(ROOT)).startswith(LEFT_OUT):
            text = FENCE.sub("", path.read_text("utf-8")).replace("\\_", "_")
            yield str(path.relative_to(ROOT)), TICKED.findall(text)


@cache
def known():
    """Every word of code, of settings and of blocks of code in pages, and every name of a file."""
    words = set()
    for path in files(".py"):
        if path != Path(__file__):
            words |= parts(path).words
    for suffix in (".toml", ".ini", ".yml", ".json", ".c", ".txt"):
        for path in files(suffix):
            words.update(WORD.findall(path.read_text("utf-8")))
    for path in files(".md"):
        for block in FENCE.findall(path.read_text("utf-8")):
            words.update(WORD.findall(block))
    for path in files(""):
        words.update(WORD.findall(str(path.relative_to(ROOT))))
    return words


@cache
def members():
    """The names that are defined in each module and in each class of crossflops."""
    names = defaultdict(set)
    for path in files(".py"):
        if not path.is_relative_to(PACKAGE):
            continue
        module = path.parent.name if path.name == "__init__.py" else path.stem
        for owner, own in parts(path).members.items():
            names[owner or module] |= own
        if path.name == "__init__.py":
            names[module] |= {p.stem for p in path.parent.iterdir()}
    return names


def bound(node):
    """The names that one statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {getattr(t, "id", None) or getattr(t, "attr", "") for t in targets}
    return set()


def test_a_name_in_backticks_exists():
    """One that has an underscore or capitals within: other words in backticks may be values."""
    strays, words = defaultdict(list), known() | FOREIGN
    for where, pieces in prose():
        for piece in pieces:
            for word in WORD.findall(piece):
                coined = "_" in word.strip("_") or re.search(r"[a-z][A-Z]", word)
                if coined and word not in words:
                    strays[word].append(where)
    assert not strays
    assert not FOREIGN & known(), "these are names of the repository now"


def test_a_member_in_backticks_is_one_of_its_module_or_class():
    """`module.name` and `Class.name` in docstrings, where crossflops has that module or class."""
    strays = []
    for where, pieces in prose():
        if not where.startswith("crossflops/"):
            continue
        for holder, name in (m.groups() for m in map(MEMBER.fullmatch, pieces) if m):
            if holder not in members() or name in members()[holder] | SUFFIXES:
                continue
            if f"{holder}.{name}" not in pairs() | OTHER_MEMBERS:
                strays.append(f"{where}: {holder}.{name}")
    assert not strays


def test_a_file_in_backticks_exists():
    """One of Python with its folder, or of a page with its folder, wherever the folder lies."""
    paths = {f"/{path.relative_to(ROOT)}" for suffix in (".py", ".md") for path in files(suffix)}
    strays = [
        f"{where}: {piece}"
        for where, pieces in prose()
        for piece in pieces
        if FILE.fullmatch(piece) and not any(path.endswith(f"/{piece}") for path in paths)
    ]
    assert not strays
