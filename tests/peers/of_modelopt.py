"""ModelOpt (NVIDIA): reads the configuration of skip softmax that `sparse-config` writes, layer by layer."""

import json
import tempfile
from pathlib import Path

from analysis.commands.quality import SparseConfig
from analysis.studies.context import Context
from analysis.studies.take.sparse_config import sparse_config
from tests.made.evaluating import TEXT, tiny_models
from tests.made.tiny import LAYERS

DENSE = 1  # the layer that stays dense
ROWS = ("the algorithm", "the layer that stays dense", "the other layers and their thresholds")


def ask(folder: Path) -> None:
    """The configuration of a tiny model."""
    with tempfile.TemporaryDirectory() as place:
        home = tiny_models(Path(place))
        context = Context(state=home / "state", browser=False)
        texts = [context.add_text("one", TEXT), context.add_text("other", TEXT[::-1])]
        setting = SparseConfig(texts=texts, model=str(home / "tiny"), block=8, prefill=0.2, decode=0.2, dense=[DENSE])
        exported = sparse_config(setting, context=context)
    (folder / "asked.json").write_text(json.dumps({"config": exported.numbers["config"], "layers": LAYERS}))


def compare(folder: Path) -> list[dict]:
    """What was written, held against what was read: 0 apart, or 1."""
    request, answered = (json.loads((folder / name).read_text()) for name in ("asked.json", "answered.json"))
    wanted = request["config"]["sparse_attention_config"]["config_groups"]["group_0"]["threshold_scale_factor"]
    sparse_layers = [layer for number, layer in enumerate(answered["layers"]) if number != DENSE]
    right = (
        answered["name"] == "CHECKPOINT_CALIBRATED_SOFTMAX_SKIP",
        answered["layers"][DENSE] == {"enable": False},
        all(layer["enable"] and layer["threshold_scale_factor"] == wanted for layer in sparse_layers),
    )
    rows = zip(ROWS, right, strict=True)
    return [{"case": case, "same": True, "apart": {"settings": float(not fine)}, "most": 0.0} for case, fine in rows]
