"""Formulas over an architecture."""
