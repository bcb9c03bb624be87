"""Kernels, pages and sliders, timed."""
