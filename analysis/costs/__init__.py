"""What attention costs in a model, from its config.json alone: pure arithmetic on shapes, no weights, no torch."""

from .coefficients import coefficients
from .config import KNOWN, MAX_BYTES, Uncounted, read_config, read_shape
from .gpus import GPUS, estimate, largest_batch, longest_context, named_gpu
from .layer import Entries, FeedForward, Layer
from .shape import Shape, amdahl, cache_bytes, costs, decode_bytes, first_context, prefill_flops

__all__ = ["GPUS", "KNOWN", "MAX_BYTES", "Entries", "FeedForward", "Layer", "Shape", "Uncounted", "amdahl"]
__all__ += ["cache_bytes", "coefficients", "costs", "decode_bytes", "estimate", "first_context", "largest_batch"]
__all__ += ["longest_context", "named_gpu", "prefill_flops", "read_config", "read_shape"]
