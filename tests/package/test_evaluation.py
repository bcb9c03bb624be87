"""lm-evaluation-harness under a method: dense attention scores as the harness alone, a short window does not."""

import json

import pytest

from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model

pytestmark = pytest.mark.slow

TASK = {
    "task": "made_by_hand",
    "dataset_path": "json",
    "output_type": "multiple_choice",
    "test_split": "test",
    "doc_to_text": "{{question}}",
    "doc_to_choice": ["lamp", "letter"],
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "acc"}],
}


def test_a_hand_made_task(tmp_path):
    pytest.importorskip("lm_eval", reason="the optional package lm_eval is not installed")
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    from analysis.errors import BadSetting
    from analysis.models import load_model
    from focuscope.evaluation import Focuscope

    save_model(tmp_path / "tiny")
    rows = [{"question": f"{SHORT[at : at + 40]} the", "answer": at % 2} for at in range(6)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = TASK | {"dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}}}

    def scores(model) -> list:
        found = lm_eval.simple_evaluate(
            model, tasks=[task], task_manager=TaskManager(include_defaults=False), bootstrap_iters=0, log_samples=True
        )
        samples = sorted(found["samples"]["made_by_hand"], key=lambda one: one["doc_id"])
        return [answer for one in samples for (answer, _) in one["filtered_resps"]]

    place = str(tmp_path / "tiny")
    stock = load_model(place)
    alone = scores(HFLM(pretrained=stock.lm, tokenizer=stock.tokenizer, batch_size=1))
    model = Focuscope(place, "streaming_llm", window=4, n_sink=0, batch_size=1)
    assert lm_eval.api.registry.get_model("focuscope") is Focuscope
    short = scores(model)
    model.applied.__exit__(None, None, None)
    assert scores(model) == pytest.approx(alone, abs=1e-5), "without the method it is the stock model"
    assert max(abs(one - other) for one, other in zip(short, alone, strict=True)) > 1e-4
    assert scores(Focuscope(place, batch_size=1)) == pytest.approx(alone, abs=1e-5)
    with pytest.raises(BadSetting, match="snapkv decides at the end of a prompt"):
        Focuscope(place, "snapkv")
