"""What dense attention reads in a text, streamed over blocks of queries: exact, and no weights of size T x T are kept.

For padded texts and sliding windows transformers itself makes a mask of that size, one byte for each pair.
"""

from analysis.kernels.rank import top_p_rank
from analysis.statistics.far import FarReading
from analysis.statistics.heads import CORE, MORE, HeadReading, attention_statistics
from analysis.statistics.inputs import attention_inputs, forward
from analysis.statistics.labels import SINK, head_labels
from analysis.statistics.numerics import Numerics

__all__ = [
    "CORE",
    "MORE",
    "SINK",
    "FarReading",
    "HeadReading",
    "Numerics",
    "attention_inputs",
    "attention_statistics",
    "forward",
    "head_labels",
]
__all__ += ["top_p_rank"]
