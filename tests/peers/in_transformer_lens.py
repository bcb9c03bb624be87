"""`python -I in_transformer_lens.py FOLDER`: how far every head of a model fits TransformerLens' patterns."""

import json
import sys
from pathlib import Path

import torch
from transformer_lens import head_detector
from transformer_lens.model_bridge import TransformerBridge

PATTERNS = {
    "previous token": head_detector.get_previous_token_head_detection_pattern,
    "duplicate token": head_detector.get_duplicate_token_head_detection_pattern,
    "induction": head_detector.get_induction_head_detection_pattern,
}
PLAIN = {"exclude_bos": False, "exclude_current_token": False, "error_measure": "mul"}


@torch.no_grad()
def main(folder: Path) -> None:
    """Name -> scores [L][H]: attention on the pattern, as a share of all attention of the text."""
    request = json.loads((folder / "asked.json").read_text())
    model = TransformerBridge.boot_transformers(request["model"], device="cpu", dtype=torch.float32)
    ids = torch.tensor([request["ids"]])
    _, cache = model.run_with_cache(ids)
    layers = [cache["pattern", layer][0] for layer in range(model.cfg.n_layers)]  # [H, T, T]
    scores_of = {}
    for name, pattern_of in PATTERNS.items():
        pattern = pattern_of(ids)
        score = head_detector.compute_head_attention_similarity_score
        scores_of[name] = [[score(head, detection_pattern=pattern, **PLAIN) for head in layer] for layer in layers]
    (folder / "answered.json").write_text(json.dumps(scores_of))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
