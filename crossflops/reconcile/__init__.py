"""What a convention predicts, and every reason why that differs from the native count."""

from crossflops.reconcile.nodes import TOLD, NodePrediction, fold_nodes, predict_nodes
from crossflops.reconcile.parameters import EXPORTED, Stock, reconcile_parameters, reconcile_stored
from crossflops.reconcile.prediction import (
    Booking,
    Prediction,
    PredictionError,
    WatchError,
    predict,
)
from crossflops.reconcile.rebuilt import from_file, parameters_from_file
from crossflops.reconcile.walk import OTHER_FILE, reconcile, reconcile_nodes, unpredicted

__all__ = [
    "EXPORTED",
    "OTHER_FILE",
    "TOLD",
    "Booking",
    "NodePrediction",
    "Prediction",
    "PredictionError",
    "Stock",
    "WatchError",
    "fold_nodes",
    "from_file",
    "parameters_from_file",
    "predict",
    "predict_nodes",
    "reconcile",
    "reconcile_nodes",
    "reconcile_parameters",
    "reconcile_stored",
    "unpredicted",
]
