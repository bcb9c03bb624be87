"""The training of a model that reads far: recall documents, repeats, and its recipe."""
