"""How long a model takes with a method and without, and one decode step of its attention."""

from analysis.inference.step import DecodeTime, quickest, time_decode
from analysis.inference.whole import PARTS, InferenceTime, Side, time_inference

__all__ = ["PARTS", "DecodeTime", "InferenceTime", "Side", "quickest", "time_decode", "time_inference"]
