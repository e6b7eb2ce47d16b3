"""Writes the golden logits and states of Qwen3.5-family models with Hugging
Face transformers.

The files in tests/golden/model/ are committed; the tests need nothing of this.
To make them again (about 2 minutes to install, CPU only):

    python3 -m venv ~/golden-venv
    ~/golden-venv/bin/pip install torch 'transformers>=5,<6' safetensors numpy
    cmake --build build/release --target holdfast-make-model
    ~/golden-venv/bin/python scripts/golden/make_qwen35_golden.py \
        --make-model build/release/bin/holdfast-make-model

The models are written by holdfast-make-model and loaded as folders; everything
is computed in float32 with eager attention. Sections, in the reference's order:
the states [layer][value head][key dim][value dim], the convolutions' last three
inputs [layer][channel][tap], oldest first, and the last hidden row before the
final norm.

A router's choice is a step: where the last chosen and the first rejected expert
are as good as equal, two right programs differ. So prompts of models with
experts are changed, id by id, until at every position and in every layer these
two are more than MIN_GAP apart.
"""

import argparse
import subprocess
import tempfile

import numpy as np
import torch
import transformers

import golden_file

KINDS = ["tiny-qwen35", "tiny-qwen35-moe", "tiny-qwen3-next"]
LENGTHS = [1, 3, 63, 64, 65, 1023, 1024, 1025, 2500]
INNER_POSITIONS = [0, 2, 3, 63, 64, 512, 2047, 2048]  # of the longest prompt
MIN_GAP = 1.5e-4  # of probabilities
STATE_STRIDE = 29
TAIL_STRIDE = 7
TAIL = 3


class Probe:
    """Runs a model and keeps what its modules saw."""

    def __init__(self, folder: str):
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        self.gaps: list[torch.Tensor] = []  # of each layer with experts, each position
        for layer in self.model.model.layers:
            gate = getattr(layer.mlp, "gate", None)
            if gate is not None:
                gate.register_forward_hook(self._keep_gaps)
        self.model.model.norm.register_forward_pre_hook(self._keep_hidden)
        self.hidden = None

    def _keep_gaps(self, gate, _, result) -> None:
        probabilities = torch.softmax(result[0].float(), dim=-1)
        best = torch.topk(probabilities, gate.top_k + 1, dim=-1).values
        self.gaps.append(best[:, -2] - best[:, -1])

    def _keep_hidden(self, _, inputs) -> None:
        self.hidden = inputs[0][0, -1].float().numpy()

    def run(self, ids: list[int]):
        self.gaps.clear()
        with torch.no_grad():
            return self.model(torch.tensor([ids]), use_cache=True)

    def first_close_choice(self):
        """The first position where a router hardly prefers what it chooses."""
        if not self.gaps:
            return None
        close = torch.stack(self.gaps).min(dim=0).values <= MIN_GAP
        return int(close.nonzero()[0]) if close.any() else None


def clear_prompt(probe: Probe, length: int, vocabulary: int):
    ids = golden_file.pseudo_random_ids(length, vocabulary, seed=length)
    spare = iter(golden_file.pseudo_random_ids(100 * length, vocabulary, seed=length + 7))
    while True:
        result = probe.run(ids)
        position = probe.first_close_choice()
        if position is None:
            return ids, result
        ids[position] = next(spare)


def sections_of(probe: Probe, cache):
    states, tails = [], []
    for layer in cache.layers:
        if not hasattr(layer, "recurrent_states"):
            continue
        states.append(first(layer.recurrent_states)[0].float().numpy())
        tail = first(layer.conv_states)[0].float().numpy()[:, -TAIL:]
        missing = TAIL - tail.shape[1]
        tails.append(np.pad(tail, ((0, 0), (missing, 0))))
    return [
        (STATE_STRIDE, np.stack(states)),
        (TAIL_STRIDE, np.stack(tails)),
        (1, probe.hidden),
    ]


def first(states):
    """transformers keeps a list or a dictionary of them, with one entry here."""
    if torch.is_tensor(states):
        return states
    return next(iter(states.values())) if isinstance(states, dict) else states[0]


def make(make_model: str, kind: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = f"{temporary}/model"
        subprocess.run([make_model, kind + "-hf", folder], check=True)
        probe = Probe(folder)
    cases = []
    for length in LENGTHS:
        ids, result = clear_prompt(probe, length, probe.model.config.vocab_size)
        positions = [length - 1]
        if length == max(LENGTHS):
            positions = INNER_POSITIONS + positions
        logits = result.logits[0].float().numpy()
        rows = [(p, 1, logits[p]) for p in positions]
        cases.append((ids, rows, sections_of(probe, result.past_key_values)))
        gap = min((float(g.min()) for g in probe.gaps), default=None)
        print(kind, length, "tokens, smallest gap of a router:", gap)
    golden_file.write(golden_file.OUT / f"{kind}.golden", cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make-model", required=True, help="path of holdfast-make-model")
    arguments = parser.parse_args()
    golden_file.OUT.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        make(arguments.make_model, kind)


if __name__ == "__main__":
    main()
