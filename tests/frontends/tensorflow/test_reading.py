"""Files of Keras and TensorFlow: which are read, and what is said of those that are not."""

import zipfile

import pytest

from crossflops.errors import CrossflopsWarning, InputError, TargetError
from crossflops.frontends import normalize
from crossflops.frontends.inputs import parse_inputs
from crossflops.frontends.tensorflow.kinds import is_tensorflow_file, split_path_and_signature
from crossflops.frontends.tensorflow.load.function import call_to_trace
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import load_target_source

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers


class Doubled(layers.Layer):
    """A layer that Keras does not know."""

    def call(self, x):
        """Twice what comes in."""
        return 2 * x


class Coder(tf.Module):
    """Two products, each a signature of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = tf.Variable(tf.ones((8, 4))), tf.Variable(tf.ones((4, 2)))

    @tf.function(input_signature=[tf.TensorSpec((None, 8), name="x")])
    def encode(self, x):
        """8 to 4."""
        return {"z": x @ self.first}

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="z")])
    def decode(self, z):
        """4 to 2."""
        return {"y": z @ self.second}


def macs(target, shape):
    """The MACs of a target."""
    return count(
        normalize(load_target_source(str(target), {}, parse_inputs((shape,))), Setting())[0]
    ).total.macs


def refused(target):
    """What is said of a target that cannot be read: a line each."""
    with pytest.raises(TargetError) as caught:
        load_target_source(str(target), {}, ())
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value.message.removeprefix(str(target)).strip(), caught.value.hint


def saved(path, *stack):
    """The file of a model with these layers."""
    keras.Sequential([layers.Input((4,)), *stack]).save(path)
    return path


@pytest.fixture
def coder(tmp_path):
    """A SavedModel with two signatures, neither the usual one."""
    model, path = Coder(), tmp_path / "coder"
    signatures = {"encode": model.encode, "decode": model.decode}
    tf.saved_model.save(model, str(path), signatures=signatures)
    return path


def test_a_signature_behind_a_colon(coder):
    """3 x 8 x 4 products of one, 3 x 4 x 2 of the other."""
    assert macs(f"{coder}:encode", "3x8") == 96
    assert macs(f"{coder}:decode", "3x4") == 24
    assert refused(f"{coder}:sing")[1] == "write one of its signatures: encode, decode"
    with pytest.raises(InputError) as caught:
        macs(coder, "3x8")
    assert caught.value.message.endswith("none is chosen: encode, decode")
    assert caught.value.hint.endswith("FOLDER:encode")


def test_what_a_colon_means(coder, tmp_path):
    """Only behind the folder of a SavedModel it parts a signature."""
    assert split_path_and_signature(f"{coder}:decode") == (coder, "decode")
    assert not is_tensorflow_file(f"{tmp_path}:decode")
    assert not is_tensorflow_file("keras.applications:ResNet50")


def test_a_file_of_keras_2(tmp_path):
    """HDF5, as it was usual before."""
    assert macs(saved(tmp_path / "old.h5", layers.Dense(5)), "2x4") == 2 * 4 * 5


def test_archives_that_are_none(tmp_path):
    """Cut off, or an archive of something else."""
    whole = saved(tmp_path / "whole.keras", layers.Dense(2)).read_bytes()
    (tmp_path / "cut.keras").write_bytes(whole[: len(whole) // 2])
    assert refused(tmp_path / "cut.keras")[0] == "is not a .keras file, or is incomplete"
    with zipfile.ZipFile(tmp_path / "other.keras", "w") as archive:
        archive.writestr("a.txt", "")
    assert refused(tmp_path / "other.keras")[0].startswith("contains no Keras model")


def test_code_in_a_file(tmp_path):
    """Layers of one's own are named; a lambda runs only if it may."""
    own = refused(saved(tmp_path / "own.keras", Doubled()))
    assert own[0] == "has layers that Keras does not know: Doubled"
    path = saved(tmp_path / "lambda.keras", layers.Lambda(lambda x: 2 * x), layers.Dense(2))
    assert refused(path)[1] == "if you trust the file, add --allow-pickle"
    load_target_source(str(path), {}, parse_inputs(("2x4",)), allow_pickle=True)


def test_folders_that_lack_something(coder, tmp_path):
    """No variables, or nothing at all."""
    for held in sorted((coder / "variables").iterdir()):
        held.unlink()
    (coder / "variables").rmdir()
    assert refused(coder)[0] == "does not contain its folder `variables`"
    (coder / "saved_model.pb").write_bytes(b"")
    assert refused(coder)[0] == "is an empty SavedModel"
    (tmp_path / "none.pb").write_bytes(b"")
    assert refused(tmp_path / "none.pb")[0] == "contains no operations"


def test_inputs_that_a_signature_does_not_take(coder):
    """Another width, another type: it says what it takes."""
    for shape, given in (("3x9", "(3, 9) and float32"), ("3x8:int32", "(3, 8) and int32")):
        with pytest.raises(InputError) as caught:
            macs(f"{coder}:encode", shape)
        assert caught.value.message.endswith(f"(None, 8) and the type float32, got {given}")


def test_a_graph_that_is_not_frozen(tmp_path):
    """Its variables come in from outside, and have no shapes there."""
    weights = tf.Variable(tf.ones((8, 4)))
    run = tf.function(lambda x: x @ weights).get_concrete_function(tf.TensorSpec((2, 8)))
    (tmp_path / "open.pb").write_bytes(run.graph.as_graph_def().SerializeToString())
    with pytest.raises(InputError) as caught:
        macs(tmp_path / "open.pb", "2x8")
    assert caught.value.hint.endswith("or give the SavedModel")


def test_other_inputs_than_those_of_a_frozen_graph(tmp_path):
    """Its inputs are listed; without inputs the option is to be left out."""
    for names, message, hint in (
        (
            ("a", "b"),
            "the graph has the inputs a, b, but other inputs were given",
            "give one --input for each: --input a=SHAPE --input b=SHAPE",
        ),
        ((), "the graph has no inputs, but 1 were given", "leave out --input"),
    ):
        with tf.Graph().as_default() as graph:
            tensors = [tf.compat.v1.placeholder(tf.float32, (2, 2), name=name) for name in names]
            tf.add_n([tf.ones((2, 2)), *tensors])
        (tmp_path / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString())
        with pytest.raises(InputError) as caught:
            macs(tmp_path / "frozen.pb", "2x2")
        assert (caught.value.message, caught.value.hint) == (message, hint)


def test_other_inputs_than_lists_and_scalars_of_a_model():
    """The options are made for a list of inputs, which has no shape, and for a number."""
    x, y, z = (keras.Input(batch_shape=(2, 4)) for _ in range(3))
    w = keras.Input(batch_shape=())
    model = keras.Model({"pair": [x, y], "z": z, "w": w}, layers.add([x, y, z]) * w)
    with pytest.raises(InputError) as caught:
        call_to_trace(model, (tf.TensorSpec((2, 4)),), {}, False)
    assert caught.value.hint.endswith("--input pair=SHAPE --input z=2x4 --input w=scalar")


def test_the_inputs_of_a_sequential_model(tmp_path):
    """By place or by name; a name that it does not have is answered with those that it has."""
    path = saved(tmp_path / "named.keras", layers.Dense(5))
    name = keras.saving.load_model(path).inputs[0].name
    assert macs(path, f"{name}=2x4") == 2 * 4 * 5
    with pytest.raises(InputError) as caught:
        macs(path, "other=2x4")
    assert caught.value.message.endswith(f"do not match the inputs of the model: {name}")


@pytest.mark.parametrize(
    ("shape", "suffix", "expected"),
    [((None, 8), "keras", 24), ((3, 8), "keras", 72), ((None, 8), "h5", 24), ((None, 8), "", 24)],
)
def test_a_model_that_knows_its_input_needs_none(tmp_path, shape, suffix, expected):
    """8 x 3 MACs for each example: one for an open batch, which is said, else all of them."""
    network = keras.Sequential([layers.Input(batch_shape=shape), layers.Dense(3)])
    path = tmp_path / f"net.{suffix}" if suffix else tmp_path / "net"
    network.save(path) if suffix else network.export(path, verbose=False)
    with pytest.warns(CrossflopsWarning, match="from the model itself") as caught:
        source = load_target_source(str(path), {}, ())
    assert count(normalize(source, Setting())[0]).total.macs == expected
    assert ("1 for its open batch" in str(caught[0].message)) == (shape[0] is None)


def test_an_open_size_that_is_no_batch_is_asked_for(tmp_path):
    """The steps of a sequence are the user's; the hint has the type of an input, too."""
    words = layers.Input((None,), dtype="int32", name="words")
    keras.Model(words, layers.Embedding(7, 3)(words)).save(tmp_path / "net.keras")
    with pytest.raises(InputError) as caught:
        normalize(load_target_source(str(tmp_path / "net.keras"), {}, ()), Setting())
    assert "--input words=1x1:int32" in caught.value.hint
