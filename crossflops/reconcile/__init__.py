"""What a convention predicts, and every reason why that differs from the native count."""

from crossflops.reconcile.bookings import Booking, Prediction, PredictionError
from crossflops.reconcile.nodes import fold_nodes
from crossflops.reconcile.parameters import reconcile_parameters
from crossflops.reconcile.prediction import predict
from crossflops.reconcile.walk import reconcile, unpredicted

__all__ = [
    "Booking",
    "Prediction",
    "PredictionError",
    "fold_nodes",
    "predict",
    "reconcile",
    "reconcile_parameters",
    "unpredicted",
]
