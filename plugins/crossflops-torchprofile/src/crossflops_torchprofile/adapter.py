"""Run torchprofile's profile_macs (github.com/zhijian-liu/torchprofile)."""

import importlib
import warnings
from typing import Any

from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins.adapter import exact, installed, is_module, positional, under


class Torchprofile:
    """The adapter of `torchprofile.profile_macs`, which traces the model with torch.jit."""

    name = "torchprofile"
    convention = "torchprofile"
    distribution = "torchprofile"
    on_fakes = True

    def version(self) -> str:
        """Return the version of the installed torchprofile; raise MissingExtraError if it is not
        installed.
        """
        return installed(self.distribution)

    def load(self) -> None:
        """Import torchprofile, with PyTorch."""
        self.version()
        importlib.import_module("torchprofile")

    def accepts(self, model: object) -> bool:
        """Return whether the model is a torch.nn.Module."""
        return is_module(model)

    def profile(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
    ) -> Profile:
        """Return the total of MACs that torchprofile prints.

        It gives the number of each node, but not the module of a node, so there are no numbers of
        modules.

        torchprofile keeps the caller's mode and gradients, and sets no hooks. It refuses keyword
        inputs, so all go by position. Its warnings name what it does not know, as many times as
        it occurs: the convention says so once.
        """
        self.load()
        torchprofile = importlib.import_module("torchprofile")
        inputs = positional(model.forward, args, kwargs)
        with under(setting, model), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            total = exact(torchprofile.profile_macs(model, inputs))
        return Profile(
            tool=self.name,
            version=self.version(),
            setting=setting,
            total=total,
            printed_as="MACs",
            entries=(Entry("", total),),
        )
