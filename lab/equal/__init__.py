"""Every method at the same budget: reads, kept keys, blocks of a prompt."""
