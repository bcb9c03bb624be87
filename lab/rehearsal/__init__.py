"""Whole models on an accelerator that computes shapes alone: what waits for a GPU, and what it would hold."""
