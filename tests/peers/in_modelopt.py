"""`python -I in_modelopt.py FOLDER`: what ModelOpt reads in the configuration that `sparse-config` writes."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from modelopt.torch.sparsity.attention_sparsity.plugins import sparse_attn_config as reader


def main(folder: Path) -> None:
    """The name of the algorithm, and what each layer of the model is given."""
    request = json.loads((folder / "asked.json").read_text())
    read, name = reader.load_from_checkpoint_metadata(SimpleNamespace(**request["config"]))
    layers = [reader.match_sparse_config(f"model.layers.{layer}.self_attn", read) for layer in range(request["layers"])]
    (folder / "answered.json").write_text(json.dumps({"name": name, "layers": layers}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
