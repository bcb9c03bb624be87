"""BibTeX of the papers behind methods and pages, from references.bib: an entry is called like its method or paper."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("references.bib")
OF_METHOD = {  # methods whose entry has another name; "" where no paper proposes what it does
    "dense": "",
    "oracle_topk": "",
    "oracle_topp": "",
    "bucket_routing": "gwr_linear_routing",
    "csa": "calibrated_sparse_attention",
    "focal": "focal_attention",
    "focal_learned": "focal_attention",
    "kvzip_plus": "kvzip",
    "layer_reuse": "kascade",
    "kv_int8": "kivi",
    "kv_int4": "kivi",
    "kv_int2": "kivi",
    "kv_fp8": "fp8_formats",
    "kv_turbo": "turboquant",
}


@cache
def entries() -> dict[str, str]:
    """Name -> BibTeX entry."""
    listed = FILE.read_text(encoding="utf-8").strip().split("\n\n")
    return {entry.partition("{")[2].partition(",")[0]: entry for entry in listed}


def bibtex(names: Iterable[str]) -> str:
    """The entries of methods and papers, each once, in this order; names without one are passed over."""
    references = entries()
    keys = dict.fromkeys(OF_METHOD.get(name, name) for name in names)
    return "\n\n".join(references[key] for key in keys if key in references)
