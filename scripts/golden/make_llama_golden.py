"""Writes the golden logits of Llama-family models with Hugging Face transformers.

The files in tests/golden/model/ are committed; the tests need nothing of this.
To make them again (about 2 minutes to install, CPU only):

    python3 -m venv ~/golden-venv
    ~/golden-venv/bin/pip install torch 'transformers>=5,<6' safetensors \
        tokenizers gguf numpy
    cmake --build build/release --target holdfast-make-model
    ~/golden-venv/bin/python scripts/golden/make_llama_golden.py \
        --make-model build/release/bin/holdfast-make-model \
        [--smollm2 SmolLM2-135M-Instruct.Q4_1.gguf]

The tiny models are written by holdfast-make-model and loaded as folders; the
SmolLM2 file is dequantised to float32 here. Everything is computed in float32
with eager attention.
"""

import argparse
import pathlib
import subprocess
import tempfile

import gguf
import numpy as np
import tokenizers
import torch
import transformers

import golden_file

KINDS = ["tiny-llama", "tiny-llama3", "tiny-linear", "tiny-qwen2", "tiny-qwen3"]
LENGTHS = [1, 3, 255, 256, 257, 1023, 1024, 1025]
INNER_POSITIONS = [0, 15, 16, 511, 512, 1000]  # of the longest prompt

SMOLLM2_TEXT = (
    "<|im_start|>system\nYou are a careful assistant who answers in one sentence."
    "<|im_end|>\n<|im_start|>user\nThe ferry leaves at 7:45 and needs 38 minutes; "
    "the bus from the pier leaves at 8:20.\n\n```python\nfor i in range(10):\n"
    "    print(i ** 2)\n```\nWhich of the two facts do I need to know whether I "
    "will catch the bus, and will I?<|im_end|>\n<|im_start|>assistant\n"
)
SMOLLM2_STRIDE = 16  # of all rows but the last


def logits_of(model, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def make_tiny(make_model: str, kind: str, out: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = f"{temporary}/model"
        subprocess.run([make_model, kind + "-hf", folder], check=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    vocabulary = model.config.vocab_size
    cases = []
    for length in LENGTHS:
        ids = golden_file.pseudo_random_ids(length, vocabulary, seed=length)
        positions = [length - 1]
        if length == max(LENGTHS):
            positions = INNER_POSITIONS + positions
        logits = logits_of(model, ids)
        cases.append((ids, [(p, 1, logits[p]) for p in positions], []))
    golden_file.write(out / f"{kind}.logits", cases)


def unpair_rows(weight: np.ndarray, heads: int) -> np.ndarray:
    """GGUF has rotary pairs side by side, transformers pairs halves."""
    rows, cols = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def smollm2_model(reader: gguf.GGUFReader):
    def field(name):
        return reader.fields["llama." + name].contents()

    config = transformers.LlamaConfig(
        vocab_size=field("vocab_size"),
        hidden_size=field("embedding_length"),
        intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"),
        num_attention_heads=field("attention.head_count"),
        num_key_value_heads=field("attention.head_count_kv"),
        max_position_embeddings=field("context_length"),
        rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": field("rope.freq_base")},
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    ends = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    state = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        name = tensor.name.removesuffix(".weight")
        if name in ends:
            state[ends[name] + ".weight"] = torch.from_numpy(value)
            continue
        _, layer, part = name.split(".")
        if part == "attn_q":
            value = unpair_rows(value, config.num_attention_heads)
        if part == "attn_k":
            value = unpair_rows(value, config.num_key_value_heads)
        state[f"model.layers.{layer}.{parts[part]}.weight"] = torch.from_numpy(value)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = transformers.LlamaForCausalLM(config).float().eval()
    model.load_state_dict(state, strict=True)
    return model


def smollm2_ids(reader: gguf.GGUFReader) -> list[int]:
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    control = gguf.TokenType.CONTROL
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, types) if kind == control])
    return tokenizer.encode(SMOLLM2_TEXT).ids


def make_smollm2(path: str, out: pathlib.Path) -> None:
    reader = gguf.GGUFReader(path)
    ids = smollm2_ids(reader)
    logits = logits_of(smollm2_model(reader), ids)
    last = len(ids) - 1
    rows = [(p, SMOLLM2_STRIDE, logits[p]) for p in range(0, last, 16)]
    rows.append((last, 1, logits[last]))
    golden_file.write(out / "smollm2-135m-instruct-q4_1.logits", [(ids, rows, [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make-model", required=True, help="path of holdfast-make-model")
    parser.add_argument("--smollm2", help="the demo model's GGUF file; without it that file is left as is")
    arguments = parser.parse_args()
    out = golden_file.OUT
    out.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        make_tiny(arguments.make_model, kind, out)
    if arguments.smollm2:
        make_smollm2(arguments.smollm2, out)


if __name__ == "__main__":
    main()
