"""What a loaded model caches and costs, by the arithmetic of `analysis.costs` on its own configuration."""

import json

from ..costs import Shape, read_shape
from .loading import Model


def counted(model: Model) -> Shape:
    """The shape of a loaded model, its numbers in the type that it runs in. Errors: BadModel for a family whose layers
    are not counted."""
    config = json.loads(model.lm.config.get_text_config().to_json_string(use_diff=False))
    # of the weights as they lie on the disk
    config.pop("quantization_config", None)
    # a text model that is part of another names the whole
    config.pop("architectures", None)
    return read_shape(config | {"dtype": str(model.dtype).removeprefix("torch.")})
