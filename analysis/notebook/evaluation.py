"""A method as a model of lm-evaluation-harness: scores of its tasks under sparse attention.

    focuscope-lm-eval run --model focuscope --model_args pretrained=demo,method=streaming_llm,window=64 --tasks TASK

The harness (0.4) looks for no plug-ins, so this command makes the model `focuscope` known to it and hands over to its
own; in the checkout it is `python -m focuscope lm-eval`. It needs the extra `benchmarks`.
"""

from typing import Any

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

from ..errors import BadSetting
from ..methods import METHODS
from ..models import load_model
from .shown import apply

__all__ = ["Focuscope", "cli_evaluate"]

# What HFLM still heeds of a model that is loaded already; it drops all others without a word.
SCORING = (
    "batch_size max_batch_size max_length truncation logits_cache softmax_dtype mixed_precision_dtype add_bos_token "
    "prefix_token_id backend chat_template_args enable_thinking think_end_token"
).split()


@register_model("focuscope")
class Focuscope(HFLM):
    """HFLM that reads through `method` of METHODS. `dtype` and `device` as in `load_model`; `router`, `policy` and the
    fields of the method are further arguments, and so are those of SCORING. What the method needs fitted is looked for
    in the state folder. Errors: BadSetting, NotFitted, BadModel."""

    def __init__(
        self,
        pretrained: str = "demo",
        method: str = "dense",
        dtype: str = "auto",
        device: str = "auto",
        **settings: Any,
    ) -> None:
        method_class = METHODS.get(method)
        if method_class is not None and method_class.saves != "reads":
            raise BadSetting(
                f"{method} decides at the end of a prompt, and the harness scores prompt and answer in one pass: the "
                "verb `benchmark` asks the tasks that it can be asked."
            )
        scoring = {name: settings.pop(name) for name in SCORING if name in settings}
        self.held = load_model(pretrained, device, str(dtype).removeprefix("torch."))
        # Which knows what the method takes.
        self.applied = apply(self.held, None, method, **settings)
        # As long as the process lives.
        self.applied.__enter__()
        super().__init__(pretrained=self.held.lm, tokenizer=self.held.tokenizer, **scoring)
