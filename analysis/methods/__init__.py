"""The methods by name. Adding one: a file here, a line in METHODS, a hand-worked test, a README row."""

from .ada_kv import AdaKV
from .base import Method
from .bucket_routing import BucketRouting
from .csa import CSA
from .dense import Dense
from .duo_attention import DuoAttention
from .expected_attention import ExpectedAttention
from .flex_prefill import FlexPrefill
from .focal import Focal
from .focal_learned import FocalLearned
from .focus import Focus
from .h2o import H2O
from .keydiff import KeyDiff
from .longformer import Longformer
from .magicpig import MagicPIG
from .oracle_topk import OracleTopK
from .oracle_topp import OracleTopP
from .performer import Performer
from .pyramid_kv import PyramidKV
from .quest import Quest
from .routing_transformer import RoutingTransformer
from .skip_softmax import SkipSoftmax
from .snapkv import SnapKV
from .sparq import SparQ
from .streaming_llm import StreamingLLM
from .tova import TOVA
from .vertical_slash import VerticalSlash
from .xattention import XAttention

METHODS: dict[str, type[Method]] = {  # the first four are those a page compares at first
    "dense": Dense,
    "focus": Focus,
    "streaming_llm": StreamingLLM,
    "oracle_topk": OracleTopK,
    "csa": CSA,
    "focal": Focal,
    "focal_learned": FocalLearned,
    "bucket_routing": BucketRouting,
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
    "skip_softmax": SkipSoftmax,
    "vertical_slash": VerticalSlash,
    "flex_prefill": FlexPrefill,
    "xattention": XAttention,
}


def describe() -> dict[str, dict]:
    """Every method as plain data (docstring, paper, fields with range, help and price)."""
    return {name: method.describe() for name, method in METHODS.items()}
