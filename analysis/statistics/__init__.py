"""What dense attention reads in a text, streamed over blocks of queries: exact, and no weights of size T x T are kept.

For padded texts and sliding windows transformers itself makes a mask of that size, one byte for each pair.
"""

from ..kernels.rank import top_p_rank
from .far import FarLinks, FarReading
from .heads import CORE, MORE, HeadReading, attention_statistics
from .inputs import attention_inputs, forward
from .names import SINK, head_labels
from .numerics import Numerics

__all__ = [
    "CORE",
    "MORE",
    "SINK",
    "FarLinks",
    "FarReading",
    "HeadReading",
    "Numerics",
    "attention_inputs",
    "attention_statistics",
    "forward",
    "head_labels",
]
__all__ += ["top_p_rank"]
