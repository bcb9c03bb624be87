"""Focus' learned groups: router, Sinkhorn, fit without training, contents, long-range pairs, dominance, null
controls."""
