"""The libraries of PyTorch models that know them by a name: timm, torchvision, transformers.

In: a name, arguments and sizes. Out: a `Named`: the model without weights from anywhere, and its
usual input.
May import: frontends, ir, errors.
"""

from crossflops.frontends.named import Library
from crossflops.frontends.pytorch.libraries.of_timm import Timm
from crossflops.frontends.pytorch.libraries.of_torchvision import Torchvision
from crossflops.frontends.pytorch.libraries.of_transformers import Transformers

LIBRARIES: tuple[Library, ...] = (Timm(), Torchvision(), Transformers())
