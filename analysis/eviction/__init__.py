"""Which keys of a prompt stay in the KV cache: a score for every key, and how many keys of which head that leaves."""

from analysis.eviction.budget import evict
from analysis.eviction.scores import eviction_scores

__all__ = ["evict", "eviction_scores"]
