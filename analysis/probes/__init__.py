"""What a model can do and which heads it needs: long-context probes with one known answer, how likely a model finds it,
positions beyond its context, and its loss without some of its heads."""
