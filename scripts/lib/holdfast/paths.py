"""Where things are: the tree, the programs of a build, models, data."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RELEASE_BIN = ROOT / "build" / "release" / "bin"

DEMO_MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Kinds that holdfast-make-model writes, and whether each is one GGUF file.
GENERATED = {"tiny-llama": True, "tiny-bytes": True, "tiny-llama-hf": False,
             "tiny-llama3-hf": False, "tiny-linear-hf": False, "tiny-qwen2-hf": False,
             "tiny-qwen3-hf": False, "tiny-qwen35-hf": False, "tiny-qwen35-moe-hf": False,
             "tiny-qwen3-next-hf": False, "tiny-hybrid": False}


class SetupError(Exception):
    """Something the user has to change; the message says what."""


@dataclass(frozen=True)
class Model:
    name: str  # as results show it
    path: Path
    is_demo: bool  # the real demo model, whose speed means something


def data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(base) / "holdfast"


def program(bin_dir: Path, name: str) -> Path:
    path = bin_dir / name
    if not os.access(path, os.X_OK):
        raise SetupError(f"{path} is not built: run scripts/setup")
    return path


def private_run_dir() -> Path:
    """A new folder for sockets and logs. Short: a Unix socket's path ends at
    107 bytes."""
    base = os.environ.get("XDG_RUNTIME_DIR") or "/tmp"
    return Path(tempfile.mkdtemp(prefix="holdfast-", dir=base))


def demo_model_path() -> Path:
    return data_dir() / "models" / DEMO_MODEL_FILE


def resolve_model(name: str, bin_dir: Path) -> Model:
    """A model by name (demo, a generated kind) or by path."""
    if name == "demo":
        path = demo_model_path()
        if path.is_file():
            return Model("SmolLM2-135M-Instruct Q4_1", path, True)
        return Model("tiny-bytes (generated, random weights: the demo model is absent)",
                     generate("tiny-bytes", bin_dir), False)
    if name in GENERATED:
        return Model(name, generate(name, bin_dir), False)
    path = Path(name).expanduser()
    if not path.exists():
        known = ", ".join(["demo", *GENERATED])
        raise SetupError(f"model {name}: no such file or folder, nor one of {known}")
    path = path.resolve()
    return Model(path.name, path, path.name == DEMO_MODEL_FILE)


def generate(kind: str, bin_dir: Path) -> Path:
    """A generated model. It is kept beside the build under the digest of its
    generator, so that no build ever reads another one's model."""
    generator = program(bin_dir, "holdfast-make-model")
    digest = hashlib.sha256(generator.read_bytes()).hexdigest()[:12]
    folder = bin_dir.parent / "models" / digest
    path = folder / (f"{kind}.gguf" if GENERATED[kind] else kind)
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        made = scratch / path.name
        ran = subprocess.run([generator, kind, made], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=300)
        if ran.returncode != 0:
            raise SetupError(f"generate {kind}: {ran.stderr.strip() or ran.stdout.strip()}")
        try:
            os.rename(made, path)
        except OSError:
            if not path.exists():  # else another process was first: same bytes
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return path
