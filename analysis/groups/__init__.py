"""Focus' learned groups: router, Sinkhorn, fit without training, contents, far pairs, dominance, null controls."""
