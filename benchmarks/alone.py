"""A tool by itself on ResNet-50, as its own pages show it: `python benchmarks/alone.py thop`."""

import sys

import torch
from targets import resnet50


def by_thop() -> int:
    """MACs."""
    from thop import profile

    model, image = resnet50()
    return int(profile(model, (image,), verbose=False)[0])


def by_fvcore() -> int:
    """MACs, which fvcore calls flops."""
    from fvcore.nn import FlopCountAnalysis

    return int(FlopCountAnalysis(*resnet50()).total())


def by_torch() -> int:
    """FLOPs."""
    from torch.utils.flop_counter import FlopCounterMode

    model, image = resnet50()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(image)
    return int(counter.get_total_flops())


TOOLS = {"thop": by_thop, "fvcore": by_fvcore, "torch-flop-counter": by_torch}

if __name__ == "__main__":
    print(TOOLS[sys.argv[1]]())
