"""opencode as a child process: nothing of the user's is read or written."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from .. import paths

OPENCODE_VERSION = "1.18.33"
RUN_DEADLINE_S = 180
CONTEXT_TOKENS = 65536
OUTPUT_TOKENS = 16384
PROVIDER = "holdfast"
# Nothing is fetched, shared or updated: the runs are offline.
_OFF = ("OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_SHARE",
        "OPENCODE_DISABLE_LSP_DOWNLOAD", "OPENCODE_DISABLE_DEFAULT_PLUGINS")


def binary(data_dir: Path) -> Path:
    path = (data_dir / "clients" / f"opencode-{OPENCODE_VERSION}" / "node_modules"
            / "opencode-linux-x64" / "bin" / "opencode")
    if not os.access(path, os.X_OK):
        raise paths.SetupError(f"{path} is not installed: run scripts/test-clients")
    return path


@dataclass
class Run:
    """One `opencode run`, ended."""
    code: int
    events: list[dict] = field(default_factory=list)  # its --format json lines
    log: str = ""

    def texts(self) -> list[str]:
        return [e["part"]["text"] for e in self.events
                if e.get("type") == "text" and "text" in e.get("part", {})]

    def tools(self) -> list[dict]:
        """Tool calls as the client ran them: name, status, input, output."""
        out = []
        for event in self.events:
            if event.get("type") == "tool_use":
                part = event["part"]
                state = part.get("state", {})
                out.append({"tool": part.get("tool"), "status": state.get("status"),
                            "input": state.get("input"), "output": state.get("output")})
        return out


class Opencode:
    """One user's opencode: a home of its own under `folder`, and a project."""

    def __init__(self, program: Path, folder: Path, base_url: str, model: str):
        self._program = program
        self.project = folder / "project"
        self._home = folder / "home"
        self.project.mkdir(parents=True)
        for name in ("", ".config", ".local/share", ".cache", ".local/state"):
            (self._home / name).mkdir(parents=True, exist_ok=True)
        self._env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8", "TERM": "dumb",
            "HOME": str(self._home), "XDG_CONFIG_HOME": str(self._home / ".config"),
            "XDG_DATA_HOME": str(self._home / ".local/share"),
            "XDG_CACHE_HOME": str(self._home / ".cache"),
            "XDG_STATE_HOME": str(self._home / ".local/state"),
            "OPENCODE_CONFIG_CONTENT": json.dumps(config(base_url, model)),
            **{name: "1" for name in _OFF}}

    def run(self, message: str, *flags: str, deadline_s: float = RUN_DEADLINE_S) -> Run:
        return self.wait(self.start(message, *flags), deadline_s)

    def start(self, message: str, *flags: str) -> subprocess.Popen:
        return subprocess.Popen(
            [self._program, "run", "--format", "json", "--print-logs", *flags, message],
            cwd=self.project, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True)

    def cancel(self, process: subprocess.Popen) -> None:
        """As Ctrl-C in a terminal does."""
        os.killpg(process.pid, signal.SIGINT)

    def wait(self, process: subprocess.Popen, deadline_s: float = RUN_DEADLINE_S) -> Run:
        late: Optional[subprocess.TimeoutExpired] = None
        try:
            out, log = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired as e:
            late = e
            os.killpg(process.pid, signal.SIGKILL)
            out, log = process.communicate()
        if late:
            raise TimeoutError(f"opencode did not end within {deadline_s:.0f} s; its log ends:\n"
                               f"{log[-2000:]}")
        return Run(process.returncode, [json.loads(line) for line in out.splitlines()
                                        if line.startswith("{")], log)


def config(base_url: str, model: str) -> dict:
    """What README.md shows, with the tools allowed to run unasked."""
    return {
        "model": f"{PROVIDER}/{model}", "autoupdate": False, "share": "disabled",
        "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
        "provider": {PROVIDER: {
            "npm": "@ai-sdk/openai-compatible", "name": "Holdfast",
            "options": {"baseURL": f"{base_url}/v1", "apiKey": "none"},
            "models": {model: {
                "limit": {"context": CONTEXT_TOKENS, "output": OUTPUT_TOKENS},
                "tool_call": True, "reasoning": True,
                # Templates of Qwen3.5's kind think only when asked to.
                "options": {"enable_thinking": True}}}}}}
