"""Long-context probes: prompts with one known answer, how likely a model finds it, and positions beyond its context."""
