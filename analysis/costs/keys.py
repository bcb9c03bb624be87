"""The values of a config.json, which may come from anybody: in range, or one sentence why not."""

from dataclasses import dataclass
from typing import Any

from ..errors import BadModel

MOST_WIDTH = 10_000_000


@dataclass(frozen=True)
class Keys:
    """The part of a config.json that describes the language model, and the name of its family."""

    values: dict[str, Any]
    family: str

    def number(self, *keys: str, high: int = MOST_WIDTH, default: Any = None, low: int = 1) -> Any:
        """The whole number under the first of some keys that is there; BadModel for anything else than one in range."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            # the same number for each layer
            if isinstance(value, list) and value and all(layer == value[0] for layer in value):
                value = value[0]
            if type(value) is not int or not low <= value <= high:
                raise BadModel(
                    f"This config has {key} = {str(value)[:40]!r} where a whole number from {low} to {high:,} belongs: "
                    "correct it, or give the file as the model's authors published it."
                )
            return value
        return default

    def needed(self, *keys: str, high: int = MOST_WIDTH, low: int = 1) -> int:
        """The same, where a layer cannot be counted without it. Errors: BadModel."""
        value = self.number(*keys, high=high, low=low)
        if value is None:
            raise BadModel(
                f"This config lacks {keys[0]}, without which the layers of {self.family[:40]!r} cannot be counted: "
                "give the file as the model's authors published it."
            )
        return value

    def list(self, key: str) -> list:
        """The list under a key; an empty one for anything else."""
        value = self.values.get(key)
        return value if isinstance(value, list) else []

    def part(self, key: str) -> "Keys":
        """The object under a key; an empty one for anything else."""
        value = self.values.get(key)
        return Keys(value if isinstance(value, dict) else {}, self.family)

    def true(self, key: str, default: bool = False) -> bool:
        """Whether a key says true."""
        return self.values.get(key, default) is True
