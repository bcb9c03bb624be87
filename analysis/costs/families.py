"""The families whose config.json is counted, and those that are refused. The tests count transformers' classes too."""

# Feed-forward blocks with a gate have three matrices, others two.
GATED, PLAIN = 3, 2
# Embedding and head are two tables, unless a file says otherwise.
_GATED_UNTIED = """
llama mistral mixtral qwen2 qwen3 qwen2_moe qwen3_moe olmo olmo2 olmo3 olmoe phi3 phimoe gpt_oss stablelm
ministral glm4 granitemoe glm4_moe glm4_moe_lite glm_moe_dsa ministral3 deepseek_v2 deepseek_v3
deepseek_v32 deepseek_v4 kimi_linear longcat_flash minimax minimax_m2 minimax_m3_vl_text llama4_text
qwen3_next qwen3_5_text qwen3_5_moe_text olmo_hybrid jamba bamba falcon_h1 granitemoehybrid granitemoe_swa
doge seed_oss exaone4 helium dots1 solar_open cwm exaone_moe flex_olmo glm granitemoeshared hy_v3
mellum mimo_v2_flash afmoe bitnet axk1 aria_text flint kolibri1 diffllama granite hyperclovax
hunyuan_v1_dense hunyuan_v1_moe axk2 hy_v4 dots3_note_text beam bailing_hybrid
mistral_large4_text
""".split()
_PLAIN_UNTIED = """
gpt_neox phi gptj codegen nemotron persimmon nemotron_h apertus apertus1p5_text arcee jais2 nanochat
""".split()
# They are one.
_GATED_TIED = """
gemma4_unified_text vaultgemma cohere2_moe gemma gemma2 gemma3_text gemma4_text cohere cohere2
minicpm3 youtu lfm2 lfm2_moe lfm3 granite_swa recurrent_gemma ernie4_5 ernie4_5_moe smollm3 jetmoe zaya lara_mini
""".split()
_PLAIN_TIED = """
gpt2 opt falcon bloom gpt_bigcode starcoder2 biogpt
""".split()
# family -> (matrices of its feed-forward block, whether embedding and head are tied unless the file says otherwise)
FAMILIES = {name: (GATED, False) for name in _GATED_UNTIED} | {name: (PLAIN, False) for name in _PLAIN_UNTIED}
FAMILIES |= {name: (GATED, True) for name in _GATED_TIED} | {name: (PLAIN, True) for name in _PLAIN_TIED}
# Their text parts are families of other names.
TEXT_PARTS = {
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "kimi_k2": "deepseek_v3",
    "gemma4_unified": "gemma4_unified_text",
    "dots3_note": "dots3_note_text",
    "mistral_large4": "mistral_large4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
NO_DECODER = set("bert roberta distilbert albert electra deberta deberta-v2 xlm-roberta mpnet modernbert vit".split())
NO_ATTENTION = set("mamba mamba2 falcon_mamba rwkv xlstm".split())
# Family -> what of it is not counted.
_HASHED = "hashed tables of token groups and several residual streams"
_POOLED = "an indexer over pools of keys"
_ALTUP = "layers of several predictions (AltUp)"
_RELATIVE = "learned relative positions"
_SHARED = "layers that share their weights"
UNCOUNTED = {
    **dict.fromkeys(("gemma3n", "gemma3n_text"), _ALTUP),
    **dict.fromkeys(("glm5_next", "glm5_next_text"), _POOLED),
    **dict.fromkeys(("qwen4_exp", "qwen4_exp_text"), _HASHED),
    **dict.fromkeys(("inkling", "inkling_text", "inkling_mm_model"), _RELATIVE),
    **dict.fromkeys(("zamba", "zamba2"), _SHARED),
    "modernbert-decoder": "a prediction head of several layers",
    "moshi": "a second decoder for sound",
}
