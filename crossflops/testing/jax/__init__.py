"""Probes and the conformance kit for tools that count programs of JAX."""
