"""The methods by name. Adding one: a file here, a line in METHODS, a hand-worked test, a README row."""

from analysis.methods.dense import Dense
from analysis.methods.focus import Focus
from analysis.methods.oracle_topk import OracleTopK
from analysis.methods.streaming_llm import StreamingLLM

METHODS = {"dense": Dense, "focus": Focus, "streaming_llm": StreamingLLM, "oracle_topk": OracleTopK}


def describe() -> dict[str, dict]:
    """Every method as plain data (docstring, paper, fields with range, help and price)."""
    return {name: method.describe() for name, method in METHODS.items()}
