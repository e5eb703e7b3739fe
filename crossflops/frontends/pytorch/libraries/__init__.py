"""The libraries of PyTorch models that know them by a name: timm, torchvision, transformers.

A name, arguments and sizes come in; a `Named` goes out: the model without weights from anywhere,
and its usual input. This folder may import `frontends.named`, `ir` and `errors`.
"""

from crossflops.frontends.named import Library
from crossflops.frontends.pytorch.libraries.of_timm import Timm
from crossflops.frontends.pytorch.libraries.of_torchvision import Torchvision
from crossflops.frontends.pytorch.libraries.of_transformers import Transformers

LIBRARIES: tuple[Library, ...] = (Timm(), Torchvision(), Transformers())
