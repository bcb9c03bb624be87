"""Models that were tuned or read on: alignment, recall documents, benchmarks, induction."""
