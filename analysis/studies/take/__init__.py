"""Taking a setting along: what a stored run found, as a zip for transformers."""
