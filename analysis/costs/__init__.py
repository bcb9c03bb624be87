"""What attention costs in a model, from its config.json alone: pure arithmetic on shapes, no weights, no torch."""

from .config import KNOWN, MAX_BYTES, read_config, read_shape
from .gpus import GPUS, estimate, largest_batch, longest_context, named_gpu
from .shape import (
    FeedForward,
    Shape,
    amdahl,
    coefficients,
    costs,
    decode_bytes,
    first_context,
    kv_cache_bytes,
    prefill_flops,
)

__all__ = ["GPUS", "KNOWN", "MAX_BYTES", "FeedForward", "Shape", "amdahl", "coefficients", "costs", "decode_bytes"]
__all__ += ["estimate", "first_context", "kv_cache_bytes", "largest_batch", "longest_context", "named_gpu"]
__all__ += ["prefill_flops", "read_config", "read_shape"]
