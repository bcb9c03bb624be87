"""Is it worth it?: what of it stands in the URL."""

from app.selection.control import MODEL, Control, matching, one_of

LOADED = "loaded"  # the shape of the model in use
CONTEXTS = tuple(1 << power for power in range(8, 21))  # tokens, 256 to 1,048,576
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # answered at once
KEEPS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.33, 0.5, 0.75)  # fraction of the keys that is read
GPUS = {  # those of the worker, by their name there
    "T4": "NVIDIA T4, 16 GB",
    "L4": "NVIDIA L4, 24 GB",
    "RTX-4090": "NVIDIA RTX 4090, 24 GB",
    "L40S": "NVIDIA L40S, 48 GB",
    "A100-80GB": "NVIDIA A100 SXM, 80 GB",
    "H100-SXM": "NVIDIA H100 SXM, 80 GB",
    "H200-SXM": "NVIDIA H200 SXM, 141 GB",
    "MI300X": "AMD Instinct MI300X, 192 GB",
}
COUNTED = {"all": "all weights", "ffn": "feed-forward only"}

CONTROLS = {
    "shape": Control(matching(MODEL), LOADED),  # a well-known model, or the hash of a stored config.json
    "context": Control(one_of(*CONTEXTS)),
    "sequences": Control(one_of(*SEQUENCES), 1),
    "keep": Control(one_of(*KEEPS), 0.1),
    "gpu": Control(one_of(*GPUS), name="GPU"),
    "shape_beside": Control(matching(MODEL), name="second model"),
    "counted": Control(one_of(*COUNTED), "all"),
}
