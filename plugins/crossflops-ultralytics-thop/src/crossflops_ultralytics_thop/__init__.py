"""Run ultralytics-thop for crossflops."""

from crossflops_ultralytics_thop.adapter import UltralyticsThop

__all__ = ["UltralyticsThop"]
