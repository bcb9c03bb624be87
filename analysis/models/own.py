"""What a model does by itself to what its heads read, before any method: in sentences."""

from ..seam.entries import compresses
from ..seam.layers import attention_modules, gate_projection, has_sinks
from .loading import Model


def own_reading(model: Model) -> list[str]:
    """Sentences about a text model that is part of another, an indexer of the model's own, compressed entries, learned
    sinks, output gates and layers without softmax attention; none for a model that has nothing of this kind."""
    sentences = []
    if model.lm.config.get_text_config() is not model.lm.config:
        sentences.append("This model reads more than text: its text model alone is looked at.")
    if selects_tokens(model):
        names = ("index_topk_blocks", "index_block_size", "index_topk")
        blocks, size, keys = (getattr(model.lm.config.get_text_config(), name, None) for name in names)
        chosen = f"{blocks:,} blocks of {size:,}" if blocks and size else f"{keys:,}" if keys else "some"
        sentences.append(
            f"This model reads {chosen} keys of each query by its own indexer: statistics are of those keys and "
            "methods choose among them. Selected mass: how much of dense attention of the same weights falls on them."
        )
    if layers := compressing(model):
        sentences.append(
            f"{layers} of {model.num_layers} layers read compressed entries behind the last tokens, each made of "
            "several tokens and none itself (entry mass): all other shares are among tokens. Methods choose among "
            "tokens alone, so the entries that the model lets be read always are."
        )
    if has_sinks(model.lm):
        sentences.append(
            "Each head has a learned sink, which takes a part of every softmax (sink mass) and is no token: all other "
            "shares are among tokens."
        )
    if any(map(gate_projection, attention_modules(model.lm))):
        sentences.append(
            "Each head has an output gate: what it reads counts only as far as its mean gate is open, and is thrown "
            "away where it is closed."
        )
    if model.other_layers:
        kinds = sorted(set(model.other_layers.values()))
        sentences.append(
            f"{len(model.other_layers)} of {len(model.other_layers) + model.num_layers} layers are {', '.join(kinds)} "
            "and have no heads to look at; the others keep their numbers."
        )
    return sentences


def has_indexer(model: Model) -> bool:
    """Whether a model chooses the keys of its queries by an indexer of its own."""
    return any("indexer" in name.split(".") for name, _ in model.lm.named_parameters())


def selects_tokens(model: Model) -> bool:
    """Whether an indexer of the model's own chooses among tokens, so that methods may in its place: that of DeepSeek-V4
    chooses among compressed entries."""
    return has_indexer(model) and not compressing(model)


def compressing(model: Model) -> int:
    """How many layers read compressed entries behind their tokens."""
    return sum(map(compresses, attention_modules(model.lm)))
