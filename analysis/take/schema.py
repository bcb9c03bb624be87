"""The JSON Schema of policy.json, made from the fields of the methods that can be taken along."""

from ..declaration import fields_of
from ..methods import METHODS
from ..runs.stored import POLICY_FORMAT
from .carry import TAKEN

COUNT = {"type": "integer", "minimum": 1}
RANKS = "attention ranks that the budgets were shared out by, a list for each layer"
KNOWN = {
    "format": {"const": POLICY_FORMAT},
    "method": {"enum": list(TAKEN), "description": "which method reads by this setting"},
    "label": {"type": "string", "description": "its name with what differs from the defaults"},
    "model": {"type": "string", "description": "the model it was made for: a Hugging Face id, or the name of a folder"},
    "revision": {"type": "string", "description": "of the weights it was made for"},
    "layers": COUNT | {"description": "layers of the model"},
    "heads": COUNT | {"description": "query heads of a layer"},
    "kv_heads": COUNT | {"description": "key-value heads of a layer"},
    "width": COUNT | {"description": "dimensions of the hidden states"},
    "settings": {"type": "object", "description": "of the method, by name"},
    "policy": {
        "type": "array",
        "items": COUNT,
        "minItems": 2,
        "description": "budgets of keys layer by layer, and last the cap: layers * heads + 1 numbers",
    },
    "ranks": {"type": "array", "items": {"type": "array", "items": {"type": "number", "minimum": 0}}}
    | {"description": RANKS},
    "ratios": {"type": "array", "items": {"type": "number", "minimum": 0, "exclusiveMaximum": 1}}
    | {"description": "layer by layer, the share of the prompt's keys that is removed; layers may differ"},
    "rotated": {"type": "array", "items": {"type": "boolean"}}
    | {"description": "layer by layer, whether a rotary embedding is undone before a key's bucket is looked up"},
    "quality": {"type": ["string", "null"], "description": "what was measured, in one sentence"},
    "protocol": {"type": "object", "description": "how it was measured"},
    "command": {"type": "string", "description": "the command that measures it again"},
}
# What a method needs -> what stands beside its settings.
NEEDED = {"policy": ["policy"], "buckets": ["rotated"]}
MADE = {"router": {"temperature": {"type": "number"}, "similarity": {"enum": ["dot", "cosine"]}}}  # beside the fields


def schema() -> dict:
    """The schema, draft 2020-12: `settings` depend on the method, and budgets are needed where a method has some."""
    rules = []
    for name, fixed in TAKEN.items():
        cls = METHODS[name]
        fields = {item.name: item.json_schema() for item in fields_of(cls)} | MADE.get(cls.needs, {})
        fields |= {field: {"const": value} for field, value in fixed.items()}
        then: dict[str, object] = {"properties": {"settings": {"properties": fields, "additionalProperties": False}}}
        if needed := NEEDED.get(cls.needs) or ["ratios"] * (cls.saves == "memory"):
            then["required"] = needed
        rules.append({"if": {"properties": {"method": {"const": name}}}, "then": then})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "policy.json, a setting of sparse attention",
        "description": "Made by `python -m analysis commands`. More names may stand beside these.",
        "type": "object",
        "required": ["format", "method", "layers", "heads"],
        "properties": KNOWN,
        "allOf": rules,
    }
