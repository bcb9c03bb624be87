"""A setting that leaves the program: a zip with its policy, its tensors and one Python file for transformers."""
