"""Devices and their peaks, and what a count comes to against them. Rates are floats in FLOP/s."""
