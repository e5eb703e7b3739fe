"""What an adapter is: the few lines of code that stand between crossflops and one tool."""

from typing import Any, Protocol, runtime_checkable

from crossflops.core.profile import Profile
from crossflops.core.trace import Setting


@runtime_checkable
class Adapter(Protocol):
    """Runs one tool for real, and brings back what it printed.

    An entry point of the group `crossflops.adapters` bears the id of the tool and names a
    callable without arguments, as a rule the class, that returns the adapter. Making it, and
    asking it for `version` and `accepts`, imports neither the tool nor its framework.

    `name` is the id of the tool, `convention` the id of the tool whose convention predicts it
    (as a rule the same), `distribution` the name under which the tool is installed.

    A tool whose convention sees nodes counts ONNX files: its model is the `pathlib.Path` of one,
    without inputs. All sizes in it are definite, and external data lies beside it. The entries
    of such a tool are amounts by the name of the node, TYPE_N for a nameless N-th one.
    """

    name: str
    convention: str
    distribution: str

    def version(self) -> str:
        """The version of the installed distribution that really owns the tool's code.

        Raises MissingExtraError when the tool is not installed, or is another tool's namesake.
        """

    def load(self) -> None:
        """Import the tool and its framework, so that `profile` has nothing left to import.

        A worker calls it before it builds the model. Any exception says that the tool cannot
        be used here.
        """

    def accepts(self, model: object) -> bool:
        """Whether the tool can be asked about this model at all."""

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Run the tool on `model(*args, **kwargs)`, and give what it printed.

        Putting the setting in force is the adapter's task (`crossflops.adapters.pytorch.under`
        does it for PyTorch). The model may be changed: it was built for this call. `entries`
        hold inclusive amounts by module path, at the tool's own grain;
        `setting` is the one in
        force while the tool ran, which is `setting` unless the tool forces something else.
        Integral floats become ints (`crossflops.adapters.amounts.exact`). Any exception is the
        tool's own answer.
        """
