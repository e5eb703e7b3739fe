"""Probes and the conformance kit for tools that count TensorFlow graphs."""
