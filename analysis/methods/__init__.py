"""The methods by name. Adding one: a file here, a line in METHODS, a hand-worked test, a README row."""

from analysis.methods.ada_kv import AdaKV
from analysis.methods.base import Method
from analysis.methods.bucket_routing import BucketRouting
from analysis.methods.csa import CSA
from analysis.methods.dense import Dense
from analysis.methods.duo_attention import DuoAttention
from analysis.methods.expected_attention import ExpectedAttention
from analysis.methods.flex_prefill import FlexPrefill
from analysis.methods.focal import Focal
from analysis.methods.focal_learned import FocalLearned
from analysis.methods.focus import Focus
from analysis.methods.h2o import H2O
from analysis.methods.keydiff import KeyDiff
from analysis.methods.longformer import Longformer
from analysis.methods.magicpig import MagicPIG
from analysis.methods.oracle_topk import OracleTopK
from analysis.methods.oracle_topp import OracleTopP
from analysis.methods.performer import Performer
from analysis.methods.pyramid_kv import PyramidKV
from analysis.methods.quest import Quest
from analysis.methods.routing_transformer import RoutingTransformer
from analysis.methods.skip_softmax import SkipSoftmax
from analysis.methods.snapkv import SnapKV
from analysis.methods.sparq import SparQ
from analysis.methods.streaming_llm import StreamingLLM
from analysis.methods.tova import TOVA
from analysis.methods.vertical_slash import VerticalSlash
from analysis.methods.xattention import XAttention

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
