"""The methods by name. Adding one: a file here, a line in METHODS, a hand-worked test, a README row."""

from .base import Dense, Method
from .block_sparse import FlexPrefill, SkipSoftmax, VerticalSlash, XAttention
from .bucket_routing import BucketRouting
from .budgets import AdaKV, PyramidKV
from .csa import CSA
from .duo_attention import DuoAttention
from .eviction import H2O, TOVA, KeyDiff, SnapKV
from .expected_attention import ExpectedAttention
from .focal import Focal, FocalLearned
from .focus import Focus
from .indexer import LearnedIndexer
from .kvzip import KVzap, KVzipPlus
from .layer_reuse import LayerReuse
from .magicpig import MagicPIG
from .oracle import OracleTopK, OracleTopP
from .performer import Performer
from .quantised import KVFloat8, KVInt2, KVInt4, KVInt8, KVTurbo
from .quest import Quest
from .routing_transformer import RoutingTransformer
from .sparq import SparQ
from .triattention import TriAttention
from .windows import Longformer, StreamingLLM

METHODS: dict[str, type[Method]] = {  # the first four are those a page compares at first
    "dense": Dense,
    "focus": Focus,
    "streaming_llm": StreamingLLM,
    "oracle_topk": OracleTopK,
    "csa": CSA,
    "focal": Focal,
    "focal_learned": FocalLearned,
    "bucket_routing": BucketRouting,
    "indexer": LearnedIndexer,
    "layer_reuse": LayerReuse,
    "longformer": Longformer,
    "quest": Quest,
    "sparq": SparQ,
    "magicpig": MagicPIG,
    "routing_transformer": RoutingTransformer,
    "performer": Performer,
    "oracle_topp": OracleTopP,
    "snapkv": SnapKV,
    "ada_kv": AdaKV,
    "pyramid_kv": PyramidKV,
    "tova": TOVA,
    "h2o": H2O,
    "keydiff": KeyDiff,
    "expected_attention": ExpectedAttention,
    "duo_attention": DuoAttention,
    "triattention": TriAttention,
    "kvzip_plus": KVzipPlus,
    "kvzap": KVzap,
    "kv_int8": KVInt8,
    "kv_int4": KVInt4,
    "kv_int2": KVInt2,
    "kv_fp8": KVFloat8,
    "kv_turbo": KVTurbo,
    "skip_softmax": SkipSoftmax,
    "vertical_slash": VerticalSlash,
    "flex_prefill": FlexPrefill,
    "xattention": XAttention,
}


def describe() -> dict[str, dict]:
    """Every method as plain data (docstring, paper, fields with range, help and price)."""
    return {name: method.describe() for name, method in METHODS.items()}
