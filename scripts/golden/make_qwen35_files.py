"""Writes tests/golden/qwen35/: a tiny random Qwen3.5 model as transformers saves
it, the GGUF file that llama.cpp's converter makes of it, and its golden logits.

The files are committed; the tests need nothing of this. To make them again:

    python3 -m venv ~/golden-venv
    ~/golden-venv/bin/pip install torch 'transformers>=5,<6' safetensors numpy \
        tokenizers sentencepiece pyyaml
    git clone https://github.com/ggml-org/llama.cpp ~/llama.cpp
    cmake --build build/release --target holdfast-make-model
    ~/golden-venv/bin/python scripts/golden/make_qwen35_files.py \
        --make-model build/release/bin/holdfast-make-model --llama-cpp ~/llama.cpp

The model has a vision tower, as the published ones do; the converter leaves it
out. The converter knows pre-tokenizers by a hash over one text's ids, which a
tiny vocabulary changes: here it is told the name ("qwen35"). The model has no
MTP layers (--no-mtp).

The converter computes -exp(A_log) with torch, whose last bit is not always the
nearest float. A_log is chosen so that it is, and the file holds the same
numbers as the folder.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers

import golden_file
import make_qwen35_golden

FOLDER = golden_file.OUT.parent / "qwen35"
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]
PROMPT_TOKENS = 70


def config(vocabulary: int, end: int) -> transformers.Qwen3_5Config:
    text = dict(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=end,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    )
    vision = dict(
        depth=1,
        hidden_size=16,
        intermediate_size=16,
        num_heads=2,
        patch_size=4,
        out_hidden_size=32,
        num_position_embeddings=4,
    )
    return transformers.Qwen3_5Config(
        text_config=text, vision_config=vision, tie_word_embeddings=True, eos_token_id=end
    )


def exact_decays(count: int) -> torch.Tensor:
    """bf16 logarithms whose torch exponential is the nearest float."""
    found = []
    while len(found) < count:
        log = (torch.randn(()) * 1.2 - 3).to(torch.bfloat16)
        nearest = torch.exp(log.double()).float()
        if torch.exp(log.float()) == nearest:
            found.append(log)
    return torch.stack(found)


def randomise(model) -> None:
    """Weights that make attention neither flat nor one-hot, and states that
    last."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.copy_(exact_decays(parameter.numel()))
            elif name.endswith("linear_attn.norm.weight"):
                parameter.copy_(1 + 0.1 * torch.randn_like(parameter))
            elif name.endswith(("norm.weight", "layernorm.weight")):
                parameter.copy_(0.1 * torch.randn_like(parameter))
            elif parameter.dim() == 1 or "conv1d" in name:
                parameter.copy_(0.5 * torch.randn_like(parameter))
            elif "embed_tokens" in name:
                parameter.copy_(0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(torch.randn_like(parameter) * parameter.shape[-1] ** -0.5)


def write_folder(make_model: str, folder: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        source = pathlib.Path(temporary) / "model"
        subprocess.run([make_model, "tiny-hybrid", source], check=True)
        tokens = transformers.AutoTokenizer.from_pretrained(source)
        torch.manual_seed(35)
        model = transformers.Qwen3_5ForConditionalGeneration(
            config(len(tokens), tokens.eos_token_id)
        ).to(torch.bfloat16)
        randomise(model)
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        for name in TOKENIZER_FILES:
            shutil.copy(source / name, folder / name)


CONVERTER = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "qwen35"
import convert_hf_to_gguf
sys.argv[1:] = sys.argv[2:]
convert_hf_to_gguf.main()
"""


def convert(llama_cpp: str, folder: pathlib.Path, out: pathlib.Path) -> None:
    arguments = [folder, "--outfile", out, "--outtype", "bf16", "--no-mtp"]
    subprocess.run([sys.executable, "-c", CONVERTER, llama_cpp, *arguments], check=True)


def write_golden(folder: pathlib.Path, out: pathlib.Path) -> None:
    probe = make_qwen35_golden.Probe(str(folder))
    ids = golden_file.pseudo_random_ids(PROMPT_TOKENS, 1000, seed=35)
    result = probe.run(ids)
    logits = result.logits[0].float().numpy()
    rows = [(p, 1, logits[p]) for p in (0, 40, PROMPT_TOKENS - 1)]
    sections = make_qwen35_golden.sections_of(probe, result.past_key_values)
    golden_file.write(out, [(ids, rows, sections)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make-model", required=True, help="path of holdfast-make-model")
    parser.add_argument("--llama-cpp", required=True, help="a checkout of llama.cpp")
    arguments = parser.parse_args()
    folder = FOLDER / "folder"
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_folder(arguments.make_model, folder)
    convert(arguments.llama_cpp, folder, FOLDER / "converted.gguf")
    write_golden(folder, FOLDER / "folder.golden")
    for path in sorted(FOLDER.rglob("*")):
        print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
