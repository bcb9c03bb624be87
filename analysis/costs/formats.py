"""How many bytes the numbers of a model take: what a config.json says of its weights, quantised ones too."""

import re
from dataclasses import dataclass
from typing import Any

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1}
# Bits of a weight with its scales.
QUANTISED = {"mxfp4": 4.25, "fp8": 8.0, "fbgemm_fp8": 8.0, "nvfp4": 4.5}
# Lists of modules that stay as they were, and how all of attention stands there.
EXCEPT = ("modules_to_not_convert", "ignore", "ignored_layers")
ATTENTION = re.compile(r"attn[.*$]*$|attention[.*$]*$")


@dataclass(frozen=True)
class Formats:
    """The number format of a model, bytes of a weight in its feed-forward blocks and in what mixes tokens, and of a
    number of a linear layer's state; notes on what was left open."""

    dtype: str
    block_bytes: float
    mixer_bytes: float
    state_bytes: float
    notes: tuple[str, ...]


def formats_of(outer: dict, config: dict) -> Formats:
    """The formats that a config.json states: `outer` the whole, `config` its text part."""
    notes = []
    stated = (place.get(key) for place in (config, outer) for key in ("dtype", "torch_dtype"))
    dtype = str(next(filter(None, stated), "")).removeprefix("torch.")
    if dtype not in BYTES:
        notes.append("The config states no known number format (dtype): 2 bytes per number are assumed.")
        dtype = "bfloat16"
    usual = float(BYTES[dtype])
    block_bytes = mixer_bytes = usual
    quantised = outer.get("quantization_config") or config.get("quantization_config")
    if isinstance(quantised, dict) and quantised:
        bits = _bits(quantised)
        if bits is None:
            notes.append(
                f"Its weights are quantised in a way that isn't known here, and counted in {dtype}: with smaller "
                "weights attention's share of a decode step is larger than shown."
            )
        else:
            excepted = [entry for key in EXCEPT for entry in _texts(quantised, key)]
            block_bytes = bits / 8
            mixer_bytes = usual if any(map(ATTENTION.search, excepted)) else block_bytes
            experts = quantised.get("expert_dtype") or outer.get("expert_dtype")
            block_bytes = QUANTISED["mxfp4"] / 8 if experts == "fp4" else block_bytes
            others = f"projections {8 * mixer_bytes:.3g}, " if mixer_bytes != usual else ""
            notes.append(
                f"Its feed-forward blocks have {8 * block_bytes:.3g} bits a weight, {others}the rest is {dtype}."
            )
    states = next((config[key] for key in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype") if config.get(key)), dtype)
    state_bytes = float(BYTES.get(str(states).removeprefix("torch."), usual))
    return Formats(dtype, block_bytes, mixer_bytes, state_bytes, tuple(notes))


def _texts(settings: dict[str, Any], key: str) -> list[str]:
    value = settings.get(key)
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def _bits(settings: dict[str, Any]) -> float | None:
    """Bits of a quantised weight, with the scale and the zero of its group (16 bits each); None where unknown."""
    method = str(settings.get("quant_method", "")).lower()
    if method in QUANTISED:
        return QUANTISED[method]
    if settings.get("load_in_8bit") is True:
        return 8.0
    if settings.get("load_in_4bit") is True:
        return 4.5
    groups = settings.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    place: dict = weights if isinstance(weights, dict) else settings
    bits, group = place.get("num_bits", place.get("bits")), place.get("group_size")
    if type(bits) is not int or not 1 <= bits <= 16:
        return None
    scales = 16 if place.get("symmetric", place.get("sym")) is True else 32
    return bits + (scales / group if type(group) is int and group > 0 else 0)
