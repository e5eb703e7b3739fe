"""Make the atlas in reports/atlas: one sweep of its suite.

    python -m tests.make_atlas [--store FOLDER] [--limit N] [--timeout S] [--add] [--only PATTERN]

By default it has as many models as before, the first ones of the suite. What the store has is not
counted again. With `--add` only the models that the atlas lacks are counted, with `--only` those
that match; of the others the atlas keeps its rows. `crossflops render reports/atlas/atlas.json.gz
-o atlas.html` shows it.
"""

import argparse
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

import crossflops
from crossflops.files import read_file_bytes
from crossflops.limits import TIMEOUT
from crossflops.report.sweep import NATIVE, Sweep
from crossflops.report.sweep_summary import cause_shares
from crossflops.verbs.sweep.published import match_published_figures
from crossflops.verbs.sweep.suite import read_suite

FOLDER = Path(__file__).parent.parent / "reports" / "atlas"
FILE = FOLDER / "atlas.json.gz"
# Those that count every architecture of PyTorch.
TOOLS = ("torch-flop-counter", "fvcore", "thop", "calflops", "ptflops-pytorch")
ORIGINS = {
    "torchvision": "torchvision",
    "timm": "timm",
    "hf": "transformers",
    "diffusers": "diffusers",
    "smp": "segmentation_models_pytorch",
    "ultralytics": "Ultralytics",
    "keras": "Keras",
    "flax_models.py": "Flax: [flax_models.py](../reports/atlas/flax_models.py)",
    "models.py": "PyTorch: [models.py](../reports/atlas/models.py)",
}


def read_atlas():
    """The committed atlas."""
    return Sweep.from_json(read_file_bytes(FILE))


def merge_sweeps(earlier, later, suite, limit):
    """The rows of the first cases of a suite: those of the later sweep if it has counted the case,
    else those of the earlier one.
    """
    read = read_suite(suite)
    rows_by_case = {}
    for sweep in (earlier, later):
        for case in (
            row.case for row in sweep.rows if row.tool == NATIVE and row.total is not None
        ):
            rows_by_case[key_of(case)] = [row for row in sweep.rows if row.case == case]
    items = [item for item in read.items[:limit] if key_of(item.case) in rows_by_case]
    rows = [
        msgspec.structs.replace(row, family=item.family)
        for item in items
        for row in rows_by_case[key_of(item.case)]
    ]
    return msgspec.structs.replace(
        later,
        rows=tuple(rows),
        tools=tuple(dict.fromkeys(row.tool for row in rows if row.tool != NATIVE)),
        left_out=len(read.items) - len(items),
        published=match_published_figures(read.published, rows),
    )


def key_of(case):
    """A hashable form of a case."""
    return msgspec.json.encode(case, order="sorted")


def chosen_targets(suite, limit, atlas, patterns):
    """The targets among the first ones that match a pattern; without patterns those that the atlas
    lacks.
    """
    had = {key_of(case) for case in atlas.cases}
    return [
        item.case.target
        for item in read_suite(suite).items[:limit]
        if any(fnmatchcase(item.case.target, pattern) for pattern in patterns)
        or not (patterns or key_of(item.case) in had)
    ]


def exact_counts(atlas):
    """The cases in which each tool equals the exact count, and those that it counts: by tool."""
    rows = [row for row in atlas.rows if row.kind == "run" and row.total is not None]
    return {
        tool: (
            sum(row.is_exact for row in rows if row.tool == tool),
            sum(row.tool == tool for row in rows),
        )
        for tool in atlas.tools
    }


def headline(atlas):
    """The sentence of the README: how often each tool of PyTorch equals the exact count."""
    exact = exact_counts(atlas)
    tools = sorted(TOOLS, key=lambda tool: -exact[tool][0])
    first, *others = (f"{tool} equals the exact count for {exact[tool][0]}" for tool in tools)
    others = [text.replace(" equals the exact count", "") for text in others]
    counted = max(exact[tool][1] for tool in tools)
    words = ", ".join([first, *others[:-1]])
    return f"Of {counted} architectures of PyTorch, {words} and {others[-1]}."


def table_of_origins(atlas):
    """The table of docs/atlas.md: how many models are of each library, and of its own files."""
    counts = Counter(case.target.partition(":")[0].rpartition("/")[2] for case in atlas.cases)
    assert counts.keys() <= ORIGINS.keys()
    lines = ["| library | models |", "|---|---|"]
    return "\n".join(lines + [f"| {name} | {counts[key]} |" for key, name in ORIGINS.items()])


def table_of_reasons(atlas):
    """The table of docs/atlas.md: of each tool how many models are exact, and the causes that
    take most from its counts and add most to them.
    """
    exact = exact_counts(atlas)
    shares = cause_shares(atlas)
    lines = ["| tool | exact | leaves out | counts in addition |", "|---|---|---|---|"]
    for tool in sorted(atlas.tools, key=lambda tool: -exact[tool][0] / exact[tool][1]):
        own = [share for share in shares if share.tool == tool and share.cases > 1]
        parts = [
            ", ".join(map(share_text, sorted(chosen, key=weight)[:3])) or "-"
            for chosen in (
                [share for share in own if share.median < 0],
                [share for share in own if share.median > 0],
            )
        ]
        part, whole = exact[tool]
        lines.append(f"| {tool} | {part} of {whole} | {parts[0]} | {parts[1]} |")
    return "\n".join(lines)


def weight(share):
    """The causes that move most models furthest come first."""
    return -abs(share.median) * share.cases


def share_text(share):
    """A cause with its models and its median share of the exact count."""
    return f"`{share.cause}` ({share.cases} models, {100 * abs(share.median):.1f} %)"


def main():
    """Count what is not in the store, and write the atlas."""
    atlas = read_atlas()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="build/atlas")
    parser.add_argument("--limit", type=int, default=len(atlas.cases))
    parser.add_argument("--timeout", type=float, default=TIMEOUT)
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    suite, limit = FOLDER / "suite.toml", options.limit
    shared = {"store": options.store, "timeout": options.timeout, "on_progress": print}
    if options.add or options.only:
        targets = chosen_targets(suite, limit, atlas, options.only)
        counted = crossflops.sweep(suite, only=targets, **shared)
        result = merge_sweeps(atlas, counted, suite, limit)
    else:
        result = crossflops.sweep(suite, limit=limit, **shared)
    result.save(FILE)
    print(result)
    print(headline(result))
    print(table_of_origins(result))
    print(table_of_reasons(result))


if __name__ == "__main__":
    main()
