"""Models by name: the prefixes of libraries, bare names, and the usual input."""

import json
import sys
from types import ModuleType

import pytest

from crossflops.errors import CrossflopsWarning, InputError, MissingExtraError, TargetError
from crossflops.frontends import FRONTENDS, candidate_targets, similar_model_names_hint
from crossflops.frontends.named import NamedModel, image_input_spec, names_in_package_sources
from crossflops.frontends.named import make_library_model as make_named
from crossflops.ir.graph import TensorSpec
from crossflops.targets import load_target_source
from crossflops.targets.target import build_target, full_target_name

TIMM = """
class Model:
    pretrained_cfg = {"input_size": (3, 32, 48), "fixed_input_size": True}
    def __init__(self, **options):
        self.options = options

def create_model(name, **options):
    if name != "tiny_net":
        raise RuntimeError("Unknown model")
    return Model(**options)
"""


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """A timm and a torchvision that have a model or two, told by their files alone."""
    names_in_package_sources.cache_clear()
    for package, lines in {
        "timm": "@register_model\ndef tiny_net(): ...\n@register_model\ndef both_net(): ...\n",
        "torchvision": "@register_model()\n@handle(\n  x,\n)\ndef both_net(): ...\n",
    }.items():
        folder = tmp_path / package / "models"
        folder.mkdir(parents=True)
        (folder / "nets.py").write_text(lines)
        (folder.parent / "__init__.py").write_text(TIMM if package == "timm" else "")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] in ("timm", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)
    yield
    names_in_package_sources.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] in ("timm", "torchvision")]:
        sys.modules.pop(name)


def test_a_bare_name_is_that_of_the_one_library_that_has_it(libraries):
    """Nothing is imported for it."""
    assert candidate_targets("Tiny_Net") == ("timm:tiny_net",)
    assert full_target_name("tiny_net") == "timm:tiny_net"
    assert "timm" not in sys.modules
    assert full_target_name("nothing_like_it") == "nothing_like_it"


def test_several_libraries_are_told_as_commands(libraries, monkeypatch):
    """Unless one is preferred."""
    with pytest.raises(TargetError) as caught:
        full_target_name("both_net")
    assert caught.value.hint.startswith("write timm:both_net or torchvision:both_net, or set ")
    monkeypatch.setenv("CROSSFLOPS_LIBRARY", "torchvision,timm")
    assert full_target_name("both_net") == "torchvision:both_net"


def test_a_misspelt_name_gets_the_nearest(libraries):
    """With and without its prefix."""
    assert similar_model_names_hint("tinny_net") == "did you mean timm:tiny_net?"
    with pytest.raises(TargetError) as bare:
        build_target("tinny_net", {})
    assert bare.value.hint == "did you mean timm:tiny_net?"
    with pytest.raises(TargetError) as prefixed:
        build_target("timm:tinny_net", {})
    assert prefixed.value.hint == "did you mean tiny_net?"


@pytest.mark.parametrize("target", ["timm:any_net", "torchvision:any_net", "hf:any_folder"])
def test_a_library_that_is_not_there_is_named(monkeypatch, target):
    """Also where the framework of its models is not there, and a count needs no weights."""
    package = {"hf": "transformers"}.get(target.partition(":")[0], target.partition(":")[0])
    for absent in ("torch", package):
        monkeypatch.setitem(sys.modules, absent, None)
    # what a test before this one imported is found without its package
    monkeypatch.setitem(sys.modules, f"{package}.models", ModuleType(f"{package}.models"))
    for values in (True, False):
        with pytest.raises(MissingExtraError) as caught:
            build_target(target, {}, values=values)
        assert caught.value.hint == f"pip install {package}"


@pytest.mark.parametrize(
    ("raised", "message", "hint"),
    [
        (
            ModuleNotFoundError("No module named 'scipy.linalg'", name="scipy.linalg"),
            "lib:net needs scipy, which is not installed",
            "pip install scipy",
        ),
        (
            ImportError("\nNet requires the timm library but it was not found.\nInstall timm"),
            "lib:net needs a package that is not installed: Net requires the timm library but it "
            "was not found.",
            "install the package that the message names",
        ),
    ],
)
def test_a_package_that_a_model_of_a_library_needs_is_named(raised, message, hint):
    """Whether its import fails, or the library says so."""

    class Needing:
        prefix = package = "lib"

        def make_model(self, *given):
            raise raised

    with pytest.raises(MissingExtraError) as caught:
        make_named(Needing(), "lib:net", {}, {})
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_bare_name_without_any_library_says_which_to_install(monkeypatch):
    """The hint has a command for each library that has models by plain names."""
    monkeypatch.setattr("crossflops.frontends.named.find_spec", lambda _name: None)
    names_in_package_sources.cache_clear()
    with pytest.raises(TargetError) as caught:
        build_target("resnet50", {})
    names_in_package_sources.cache_clear()
    assert "`pip install timm` or `pip install torchvision`" in caught.value.hint
    assert "transformers" not in caught.value.hint


def test_the_usual_input_is_at_the_sizes_that_are_asked_for(libraries):
    """The model is built for an image size where its input has one size."""
    model, named = build_target("timm:tiny_net", {"num_classes": 7}, sizes={"batch": 8})
    assert model.options == {"pretrained": False, "num_classes": 7}
    assert isinstance(named, NamedModel)
    assert [spec.shape for spec in named.specs] == [(8, 3, 32, 48)]
    model, named = build_target("timm:tiny_net", {}, sizes={"image_size": 64})
    assert model.options == {"pretrained": False, "img_size": 64}
    assert [spec.shape for spec in named.specs] == [(1, 3, 64, 64)]
    with pytest.raises(TargetError, match="--seq has no effect"):
        build_target("timm:tiny_net", {}, sizes={"seq": 16})


def test_sizes_are_for_models_by_name(tmp_path):
    """Not for files, and not beside shapes."""
    with pytest.raises(InputError, match="no default input"):
        load_target_source("model.onnx", {}, (), sizes={"batch": 2})
    spec = TensorSpec("0", "float32", (1, 3, 8, 8), "input")
    with pytest.raises(InputError, match="changes the default input"):
        load_target_source("timm:tiny_net", {}, (spec,), sizes={"batch": 2})
    file = tmp_path / "model.py"
    file.write_text("def make(): ...")
    with pytest.raises(InputError, match="changes the usual input of a model"):
        load_target_source(f"{file}:make", {}, (), sizes={"batch": 2})


def test_an_image_has_the_side_that_is_asked_for():
    """Both sides then, and the usual ones otherwise."""
    assert image_input_spec("x", 3, 32, 48, {}).shape == (1, 3, 32, 48)
    assert image_input_spec("x", 3, 32, 48, {"batch": 2, "image_size": 64}).shape == (2, 3, 64, 64)


def test_every_prefix_belongs_to_one_library():
    """The nine of the manual."""
    prefixes = [library.prefix for frontend in FRONTENDS for library in frontend.model_libraries()]
    assert sorted(prefixes) == [
        *("diffusers", "gguf", "hf", "keras", "keras_hub", "smp", "timm"),
        *("torchvision", "ultralytics"),
    ]


@pytest.mark.tools
def test_a_config_alone_is_a_language_model(tmp_path):
    """A Llama of one layer: 2 x 16 tokens, and no weights; a cache is switched off."""
    pytest.importorskip("transformers")
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "num_hidden_layers": 1,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "vocab_size": 100,
            }
        )
    )
    with pytest.warns(CrossflopsWarning, match="--batch and --seq change it"):
        source = load_target_source(f"hf:{config}", {}, (), sizes={"batch": 2, "seq": 16})
    assert source.kwargs["input_ids"].shape == (2, 16)
    assert not source.model.config.use_cache
    # embeddings and head 2 x 100 x 32, attention 4 x 32², MLP 3 x 32 x 64, three norms of 32
    params = sum(weight.numel() for weight in source.model.parameters())
    assert params == 2 * 3200 + 4096 + 6144 + 96


@pytest.mark.torch
def test_torchvision_says_its_usual_input():
    """From the transforms of the weights, which are not loaded."""
    pytest.importorskip("torchvision")
    model, named = build_target("torchvision:resnet18", {}, sizes={"batch": 4})
    assert [spec.shape for spec in named.specs] == [(4, 3, 224, 224)]
    assert type(model).__name__ == "ResNet"
    with pytest.raises(TargetError) as caught:
        build_target("torchvision:resnet81", {})
    assert "resnet18" in caught.value.hint


def test_an_unknown_name_has_its_nearest_and_a_way_to_list_all(libraries):
    """Not the hundreds of names that the library has."""
    with pytest.raises(TargetError) as raised:
        build_target("timm:qqq", {})
    assert raised.value.hint.startswith("the nearest names are ")
    assert raised.value.hint.count(",") < 5
    assert 'all names: python -c "import timm; print(*timm.list_models())"' in raised.value.hint
