"""`crossflops count`."""

import gc
from typing import Any

import click

from crossflops.cli.options import (
    MODEL,
    OPTIMIZER,
    OUTPUT,
    SHOWN,
    SIZES,
    STRICT,
    TARGET,
    TRAIN,
    UNIT,
    VIEW,
    WEIGHTS,
    apply_view_options,
    command_options,
    option_group,
    pop_request,
    pop_size_options,
    reject_page_options_with_json,
    reject_timeout_without_tools,
    verb,
)
from crossflops.cli.output import print_to_stderr, showing_progress, write_verb_result
from crossflops.errors import InputError


@verb(
    "count",
    example="crossflops count model.onnx --by module",
    first=("--input", "--batch", "--by", "--as", "-o"),
)
@command_options(
    TARGET,
    *MODEL,
    *SIZES,
    *option_group(
        "Generating text",
        click.option("--prompt", type=click.IntRange(1), metavar="N",
                     help="Count a language model while it generates text: the prefill of a "
                          "prompt of N tokens, and decoding with a cache. Needs --generate. "
                          "--batch is the number of requests."),
        click.option("--generate", type=click.IntRange(1), metavar="N",
                     help="Number of new tokens of each request. Needs --prompt."),
        click.option("--images", type=click.IntRange(1), metavar="N",
                     help="Number of images in each prompt of a vision-language model, in "
                          "addition to the tokens of --prompt. --image-size is their side."),
        click.option("--cache-dtype", metavar="P", default="",
                     help="The precision of the key and value cache, such as fp8. By default "
                          "that of the model. It changes bytes alone. Needs --prompt."),
        click.option("--draft", metavar="TARGET", default="",
                     help="Count speculative decoding with this draft model, another "
                          "config: it proposes tokens, and the model checks them in one pass. "
                          "Needs --prompt, --draft-tokens and --acceptance."),
        click.option("--draft-tokens", type=click.IntRange(1), metavar="N",
                     help="Number of tokens that the draft model proposes in a round."),
        click.option("--acceptance", metavar="N|P%", default="",
                     help="How many of them are accepted on average, such as 2.5, or the chance "
                          "of each one, such as 80%."),
    ),
    click.option("--as", "as_", multiple=True, metavar="ID[@EDITION]",
                 help="Also count by this convention, without running the tool: thop@0.0.31, "
                      "exact-2k-1, or 'torchstat*' for all that match. Repeatable."),
    click.option("--vary", "vary", multiple=True, metavar="NAME",
                 help="Also give the totals as exact polynomials in this dimension: a name in the "
                      "shape of --input (batchx3x224x224) or of an ONNX file; batch, seq or "
                      "image-size of the usual input of a model; an argument of the callable; or "
                      "axes of inputs that have values (seq=1, or seq=input_ids:1,mask:1), of "
                      "which batch is the first. Repeatable."),
    click.option("--observe", is_flag=True,
                 help="Run the ONNX file once in onnxruntime, in a worker process, to find "
                      "sizes, iterations and branches that depend on data. Use --inputs for "
                      "real values."),
    WEIGHTS,
    *TRAIN,
    *OPTIMIZER,
    *VIEW,
    *option_group(
        SHOWN,
        click.option("--shapes", is_flag=True,
                     help="Also show the input, output and parameter shapes of each module. "
                          "Implies --by module."),
    ),
    STRICT,
    UNIT,
    *OUTPUT,
)  # fmt: skip
def count(
    as_: tuple[str, ...],
    vary: tuple[str, ...],
    observe: bool,
    train: bool,
    frozen: tuple[str, ...],
    trainable: tuple[str, ...],
    optimizer: str,
    loss: str,
    shapes: bool,
    prompt: int | None,
    generate: int | None,
    images: int | None,
    cache_dtype: str,
    draft: str,
    draft_tokens: int | None,
    acceptance: str,
    strict: bool,
    **fields: Any,
) -> int:
    """Count a model exactly, with no tool."""
    from crossflops.verbs import count as count_verb

    counting = {"weights": fields.pop("weights"), "observe": observe, "vary": vary, "as_": as_}
    if shapes and (fields["by"] or "module") != "module":
        raise InputError(
            f"--shapes works only with --by module, got --by {fields['by']}",
            "give --by module",
        )
    fields["by"] = "module" if shapes else fields["by"]
    if fields["by"] is fields["top"] is fields["depth"] is None:
        reject_page_options_with_json(fields, "unit")
    training = {"frozen": frozen, "trainable": trainable, "optimizer": optimizer, "loss": loss}
    requested = pop_request(
        fields, sizes=pop_size_options(fields), train=train, shapes=shapes, prompt=prompt,
        generate=generate, images=images, cache_dtype=cache_dtype, draft=draft,
        draft_tokens=draft_tokens, acceptance=acceptance, **counting, **training,
    )  # fmt: skip
    if not observe:
        reject_timeout_without_tools(requested)
    if requested.is_file:
        gc.disable()  # its values refer to none in a circle: what is done with is gone at once
    with showing_progress(f"counting {requested.target}") as on_progress:
        report = count_verb.count_target(requested, on_progress)
    write_verb_result(apply_view_options(report, fields, fields["unit"]), **fields)
    backward = report.training.uncounted if report.training else ()
    if strict and (report.uncounted or backward):
        print_to_stderr(f"strict: {len(report.uncounted or backward)} nodes are not counted")
        return 1
    return 0
