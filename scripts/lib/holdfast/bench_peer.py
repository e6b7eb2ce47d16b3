"""Holdfast and llama.cpp on one model file, in turns: tokens a second, medians
and ratios."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import paths

PROMPT = 2048
GENERATE = 32
DEPTHS = (0, 2048)
RUN_DEADLINE_S = 1800

# A test as both programs know it: (kind, depth).
Key = tuple[str, int]
Speeds = dict[Key, float]


class PeerError(Exception):
    """A program failed or said something else than expected."""


@dataclass(frozen=True)
class Round:
    ours: Speeds
    peer: Speeds


def run(command: list) -> str:
    words = [str(word) for word in command]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                             timeout=RUN_DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{words[0]}: {error}") from error
    if ran.returncode != 0:
        tail = "\n".join(ran.stderr.strip().splitlines()[-5:])
        raise PeerError(f"{' '.join(words)} ended with {ran.returncode}: {tail}")
    return ran.stdout


def parse_ours(report: dict) -> Speeds:
    return {(s["test"], s["depth"]): s["tokens_per_s"] for s in report["speeds"]}


def parse_peer(report: list) -> Speeds:
    """llama-bench measures prompts (n_gen 0) and generation (n_prompt 0)."""
    speeds = {}
    for test in report:
        kind = "prefill" if test["n_prompt"] else "decode"
        speeds[kind, test["n_depth"]] = test["avg_ts"]
    return speeds


def measure_ours(bench: Path, model: Path, threads: int, target: str | None) -> dict:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        run([bench, "model", "--model", model, "--threads", threads, "--prompt", PROMPT,
             "--generate", GENERATE, "--depth", ",".join(map(str, DEPTHS)),
             "--json", file.name, *(["--target", target] if target else [])])
        return json.load(file)


def measure_peer(llama_bench: Path, model: Path, threads: int) -> list:
    # -ngl 0: the CPU, also where llama.cpp was built for more.
    text = run([llama_bench, "-m", model, "-p", PROMPT, "-n", GENERATE,
                "-d", ",".join(map(str, DEPTHS)), "-t", threads, "-ngl", 0, "-r", 1, "-o", "json"])
    return json.loads(text)


def summarize(rounds: list[Round]) -> list[dict]:
    """One row a test. The ratio is the median of the rounds' own ratios: what
    slows the machine for a while slows both."""
    rows = []
    for kind, depth in sorted(rounds[0].ours, key=lambda k: (k[1], k[0] != "prefill")):
        key = (kind, depth)
        for one in rounds:
            if key not in one.peer:
                raise PeerError(f"llama-bench did not measure {kind} at depth {depth}")
        ours = [one.ours[key] for one in rounds]
        peer = [one.peer[key] for one in rounds]
        ratios = [a / b for a, b in zip(ours, peer)]
        rows.append({"test": kind, "depth": depth,
                     "holdfast_tokens_per_s": statistics.median(ours),
                     "llama_cpp_tokens_per_s": statistics.median(peer),
                     "ratio": statistics.median(ratios),
                     "ratios": ratios})
    return rows


def instruction_sets() -> str:
    """Those that matter to kernels, as the kernel names them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    match = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE)
    known = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve",
             "sve2")
    flags = match.group(1).split() if match else []
    return " ".join(name for name in known if name in flags) or "unknown"


def render(report: dict) -> str:
    lines = [f"{report['model']}, {report['cpu']} ({report['instruction_sets']})",
             f"holdfast: {report['backend']}; llama.cpp: {report['llama_cpp']}; "
             f"{report['threads']} threads, medians of {report['rounds']} rounds, "
             f"load {report['load_before']:.1f} to {report['load_after']:.1f}",
             f"{'test':<10}{'depth':>7}{'holdfast':>12}{'llama.cpp':>12}{'ratio':>8}"]
    for row in report["tests"]:
        lines.append(f"{row['test']:<10}{row['depth']:>7}"
                     f"{row['holdfast_tokens_per_s']:>12.1f}"
                     f"{row['llama_cpp_tokens_per_s']:>12.1f}{row['ratio']:>8.2f}")
    return "\n".join(lines)


def compare(bench: Path, llama_bench: Path, model: Path, threads: int, rounds: int,
            target: str | None) -> dict:
    load_before = os.getloadavg()[0]
    measured, ours, peer = [], {}, []
    for number in range(1, rounds + 1):
        ours = measure_ours(bench, model, threads, target)
        peer = measure_peer(llama_bench, model, threads)
        measured.append(Round(parse_ours(ours), parse_peer(peer)))
        print(f"round {number} of {rounds}", file=sys.stderr)
    return {"model": model.name, "cpu": ours["cpu"], "instruction_sets": instruction_sets(),
            "backend": ours["backend"],
            "llama_cpp": f"{peer[0]['build_commit']} ({peer[0]['backends']})",
            "threads": threads, "rounds": rounds, "prompt_tokens": PROMPT,
            "generated_tokens": GENERATE, "load_before": load_before,
            "load_after": os.getloadavg()[0], "tests": summarize(measured)}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench-peer",
        description=f"Measures prefill of {PROMPT} tokens and decode of {GENERATE}, each after "
        f"{' and '.join(map(str, DEPTHS))} tokens, here and with llama.cpp's llama-bench, in "
        "turns. The machine should have nothing else to do.")
    parser.add_argument("--llama-bench", type=Path, required=True, metavar="PATH")
    parser.add_argument("--model", type=Path, default=paths.demo_model_path(),
                        metavar="FILE", help="a GGUF file; default: the demo model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", help="instruction set that Holdfast keeps to (AVX2, ...); "
                        "llama.cpp has the one it was built for")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    parser.add_argument("--bin-dir", type=Path, default=paths.RELEASE_BIN, metavar="DIR")
    args = parser.parse_args(argv)
    try:
        if args.rounds < 1 or args.threads < 1:
            raise PeerError("--rounds and --threads are at least 1")
        report = compare(paths.program(args.bin_dir, "holdfast-bench"), args.llama_bench,
                         args.model, args.threads, args.rounds, args.target)
    except (PeerError, paths.SetupError) as error:
        print(f"bench-peer: {error}", file=sys.stderr)
        return 1
    print(render(report))
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
