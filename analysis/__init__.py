"""Focuscope's analysis: what attention reads in long texts, how much of it is needed, and what that costs.

The names below are the door; they load on first use, so `import analysis` costs nothing.
"""

import importlib
import sys
from typing import Any

from .moved import MovedModules

_ROOMS = {
    "load_model": "models.loading",
    "apply": "seam.attention",
    "METHODS": "methods",
    "attention_statistics": "statistics",
    "top_p_rank": "statistics",
    "grouped_attention": "kernels",
    "block_map": "methods.block_sparse",
    "block_attention": "kernels.blocks",
    "eviction_scores": "methods.eviction",
    "evict": "methods.evicting",
    "quantize": "kernels.bits",
    "triattention_scores": "routers.preferences",
    "why": "probes.why",
    "time_attention": "timing",
    "time_inference": "timing.inference",
    "sinkhorn": "groups.sinkhorn",
    "spherical_kmeans": "groups.kmeans",
    "fit_router": "routers",
    "gauge": "routers",
    "fit_indexer": "indexers.door",
    "indexer_scores": "indexers",
    "bucket_recall": "metrics.routing",
    "perplexity": "metrics.quality",
    "position_bins": "metrics.quality",
    "allocate_budget": "metrics.budgets",
    "interval": "metrics.intervals",
    "AnalysisError": "errors",
}
__all__ = list(_ROOMS)
sys.meta_path.append(MovedModules())


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_ROOMS[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
