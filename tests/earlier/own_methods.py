"""Methods as a user wrote them for version 0.1: they read through `keep` and shrink the KV cache through `worth`."""

from dataclasses import dataclass

from analysis.methods.base import Method, setting
from analysis.methods.evicting import Evicting


@dataclass
class EverySecond(Method):
    """Every second key, and the nearest ones."""

    title = "Every second key"
    near: int = setting(8, "nearest keys that are read", "live", 1, 1024)

    def keep(self, block):
        distance = block.rows[:, None] - block.columns
        return (distance < self.near) | (distance % 2 == 0)


@dataclass
class Longest(Evicting):
    """After the prompt, the keys with the largest norm."""

    title = "Longest keys"

    def worth(self, prompt):
        return prompt.key.float().norm(dim=-1)
