"""Which extra of crossflops brings a package that is missing."""

from crossflops.errors import MissingExtraError

EXTRAS = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "jax": "jax",
    "sklearn": "sklearn",
    "flax": "jax",
    "jaxlib": "jax",
    "skl2onnx": "sklearn",
    "joblib": "sklearn",
}


def missing(package: str) -> MissingExtraError | None:
    """The error that names the extra of a package, None for a package of somebody else."""
    name = package.partition(".")[0]
    if name not in EXTRAS:
        return None
    return MissingExtraError(
        f"{name} is not installed", f"pip install 'crossflops[{EXTRAS[name]}]'"
    )
