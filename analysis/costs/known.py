"""The shapes of well-known models, as their public config.json files state them: what costs need, nothing else."""

_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "dtype": "bfloat16"}
_LLAMA |= {"max_position_embeddings": 131072, "num_key_value_heads": 8, "tie_word_embeddings": False}

_MISTRAL = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
_MISTRAL |= {"num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "dtype": "bfloat16"}
_MISTRAL |= {"tie_word_embeddings": False}

KNOWN = {
    "openai-community/gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "EleutherAI/pythia-410m": {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "max_position_embeddings": 2048,
        "vocab_size": 50304,
        "tie_word_embeddings": False,
        "dtype": "float16",
    },
    "mistralai/Mistral-7B-v0.1": _MISTRAL
    | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4096},
    "meta-llama/Llama-3.1-8B": _LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "google/gemma-2-9b-it": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "num_hidden_layers": 42,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 8192,
        "vocab_size": 256000,
        "dtype": "bfloat16",
    },
    "mistralai/Mixtral-8x7B-v0.1": _MISTRAL
    | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 8}
    | {"num_experts_per_tok": 2, "sliding_window": None},
    "meta-llama/Llama-3.1-70B": _LLAMA
    | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
}
