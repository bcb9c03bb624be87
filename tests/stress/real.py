"""The scene of the fault tests with the project's own studies and the bundled model."""

from pathlib import Path

from analysis.corpus import sample_texts, text_hash
from tests.stress.scene import Scene

STEPS = 3  # of a training that is stopped in its middle and resumed to its end


def scene(root: Path) -> Scene:
    """A training with checkpoints as the long job, the groups of a text as what is stored before anything breaks."""
    texts = sorted(text_hash(text) for _, text in sample_texts().values())
    story = text_hash(sample_texts()["story"][1])
    training = {"model": "demo", "corpus": "+".join(texts), "steps": STEPS, "tokens_per_step": 512, "label": "stress"}
    return Scene(
        root,
        long=("train-router", training),
        quick=("groups", {"model": "demo", "text": story, "router": "k8-top1", "long_text": "first"}),
        other=("inspect", {"model": "demo", "text": texts[0]}),
        greedy=("train-router", training | {"steps": 1, "tokens_per_step": 8192, "label": "greedy"}),
        waits=lambda status: ", step " in status.stage and status.fraction > 0.1,
    )
