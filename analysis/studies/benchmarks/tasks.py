"""The tasks of lm-evaluation-harness on local documents: its prompts, filters and metrics, and nothing downloaded."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...benchmarks import TASKS, documents
from ...errors import BadSetting
from ...package import installs

NEEDED = f"Benchmarks need lm-evaluation-harness: {installs('benchmarks')}, then try again."


@dataclass(frozen=True)
class Item:
    """One question: its document; `prompt`, of which the last `question` characters are the question itself; `answers`,
    the continuations that are compared; `gold`, the place of the right one; `until`, what ends a generated answer, or
    None where none is generated."""

    doc: dict
    prompts: tuple[str, ...]
    question: int
    answers: tuple[str, ...]
    gold: int
    until: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Asked:
    """A task as it is asked: its name, title, items, examples in a prompt, files, and what counts its answers."""

    name: str
    title: str
    items: list[Item]
    shots: int
    files: list[str]
    harness: Any

    def values(self, results: Sequence[list]) -> dict[str, list[float]]:
        """Metric -> its value of every item, from what was found of each: (log-probability, greedy) of every answer, or
        the generated text. Metrics of a second filter carry its name."""
        values: dict[str, list[float]] = {}
        for item, result in zip(self.items, results, strict=True):
            by_filter = {}
            for ensemble in (getattr(self.harness, "_filters", None) or []) if isinstance(result[0], str) else ():
                from lm_eval.api.instance import Instance

                instances = [
                    Instance("generate_until", item.doc, ("", {}), place, resps=[text])
                    for place, text in enumerate(result)
                ]
                ensemble.apply(instances)
                by_filter[ensemble.name] = [instance.filtered_resps[ensemble.name] for instance in instances]
            for place, (name, read) in enumerate((by_filter or {"none": result}).items()):
                for metric, value in self.harness.process_results(item.doc, read).items():
                    values.setdefault(metric if place == 0 else f"{metric}, {name}", []).append(float(value))
        return values

    def mean(self, metric: str, values: list[float]) -> float:
        """The harness's own way to put the values of a metric together."""
        return float(self.harness.aggregation()[metric.split(",")[0]](values))


def asked(name: str, data: Path, shots: int | None, items: int | None, seed: int) -> Asked:
    """The task `name` on the files in `data`. A name that is not in TASKS is a task of the harness itself, which loads
    its data from a network. Errors: BadSetting."""
    task, files = TASKS.get(name), ["its own data set"]
    if task is None:
        manager = _harness()[0]()
        if name not in manager.all_subtasks:
            raise BadSetting(f"There is no task {name[:40]!r}; on local files there are: {', '.join(TASKS)}.")
        try:
            harness = manager.load([name])["tasks"][name]
        except Exception as error:  # whatever a data set's own loader meets
            raise BadSetting(
                f"The data of {name} could not be loaded ({type(error).__name__}): it needs a network; the tasks on "
                f"local files are {', '.join(TASKS)}."
            ) from error
        if shots is not None:
            harness.set_config("num_fewshot", shots)
    else:
        docs, examples, files = documents(task, name, data)
        shots = task.shots if shots is None else shots
        if shots >= len(examples):
            raise BadSetting(
                f"{task.title} has {len(examples):,} documents to draw examples from and {shots} were asked for: ask "
                "for fewer, or give more."
            )
        # The harness's own task with documents of ours in the place of its data set.
        manager, configurable, load_yaml = _harness()
        import datasets
        import lm_eval.tasks

        datasets.disable_progress_bars()
        place = Path(lm_eval.tasks.__file__).parent / task.place
        parts = {"asked": datasets.Dataset.from_list(docs), "examples": datasets.Dataset.from_list(examples)}
        about = load_yaml(manager(include_defaults=False, include_path=[str(place)]).task_index[task.harness].yaml_path)
        about |= {
            "custom_dataset": lambda **_: datasets.DatasetDict(parts),
            "test_split": "asked",
            "validation_split": None,
            "training_split": None,
            # From its own, a prompt leaves itself out.
            "fewshot_split": "asked" if examples is docs else "examples",
            "num_fewshot": shots,
            "metadata": {},
        }
        harness = configurable(config={part: about[part] for part in about if part not in ("tag", "group")})
    count = harness.config.num_fewshot or 0
    harness.set_fewshot_seed(seed=seed)
    listed = [_item(harness, doc, count) for _, doc in harness.doc_iterator(rank=0, limit=items, world_size=1)]
    return Asked(name, task.title if task else name, listed, count, files, harness)


def _harness() -> tuple[Any, Any, Any]:
    """The parts of the harness that are used: its tasks' index, its class of tasks, and what reads their files."""
    try:
        from lm_eval.api.task import ConfigurableTask
        from lm_eval.tasks import TaskManager
        from lm_eval.tasks._yaml_loader import load_yaml
    except ImportError as error:
        raise BadSetting(NEEDED) from error
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    return TaskManager, ConfigurableTask, load_yaml


def _item(harness: Any, doc: dict, shots: int) -> Item:
    context = harness.fewshot_context(doc, num_fewshot=shots)
    requests = harness.construct_requests(doc=doc, ctx=context, metadata=(harness.config.task, 0, 1))
    requests = requests if isinstance(requests, list) else [requests]
    target = harness.doc_to_target(doc)
    question = harness.doc_to_text(doc)
    texts = isinstance(question, str) and isinstance(context, str)
    question_length = len(question) if texts and context.endswith(question) else 0
    if requests[0].request_type == "generate_until":
        until = tuple(requests[0].args[1].get("until", ()))
        return Item(doc, (context,), question_length or len(context), (f" {target}",), 0, until)
    if requests[0].request_type != "loglikelihood":
        raise BadSetting(f"{harness.config.task} asks for {requests[0].request_type}, which is not measured here.")
    prompts, answers = (tuple(request.args[part] for request in requests) for part in (0, 1))
    gold = target if len(answers) > 1 else 0
    # Each choice is a prompt of its own.
    if harness.multiple_input:
        gold = harness.doc_to_text(doc)
    gold = gold if isinstance(gold, int) else harness.doc_to_choice(doc).index(gold)
    return Item(doc, prompts, question_length or min(map(len, prompts)), answers, gold)
