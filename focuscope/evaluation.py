"""A method as a model of lm-evaluation-harness: scores of its tasks under sparse attention.

    focuscope-lm-eval run --model focuscope --model_args pretrained=demo,method=streaming_llm,window=64 --tasks TASK

The harness (0.4) looks for no plug-ins, so this command makes the model `focuscope` known to it and hands over to its
own; in the checkout it is `python -m focuscope.evaluation`. It needs `pip install '.[benchmarks]'`.
"""

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM

from analysis import METHODS
from analysis.errors import BadSetting
from analysis.models import load_model
from focuscope.notebook import apply


@register_model("focuscope")
class Focuscope(HFLM):
    """HFLM that reads through `method` of METHODS; the fields of the method are further arguments, what it needs fitted
    is looked for in the state folder, and all other arguments are HFLM's. Errors: BadSetting, NotFitted."""

    def __init__(self, pretrained: str = "demo", method: str = "dense", **more):
        known = METHODS.get(method)
        if known is not None and known.saves != "reads":
            raise BadSetting(
                f"{method} decides at the end of a prompt, and the harness scores prompt and answer in one pass: the "
                "verb `benchmark` asks the tasks that it can be asked."
            )
        names = {field["name"] for field in known.describe()["fields"]} if known else set()
        settings = {name: more.pop(name) for name in names & set(more)}
        self.held = load_model(pretrained)
        self.applied = apply(self.held, None, method, **settings)
        self.applied.__enter__()  # as long as the process lives
        super().__init__(pretrained=self.held.lm, tokenizer=self.held.tokenizer, **more)


if __name__ == "__main__":
    cli_evaluate()
