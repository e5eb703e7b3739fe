"""Operators of ai.onnx.ml: trees, kernel machines, linear models, and what prepares features."""
