"""ultralytics-thop, as crossflops runs it."""

from crossflops_ultralytics_thop.adapter import UltralyticsThop

__all__ = ["UltralyticsThop"]
