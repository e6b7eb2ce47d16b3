"""A file system of its own for the cache folder, small enough to be filled."""

import os
import shutil
import subprocess
from pathlib import Path

_MB = 1 << 20
_STEP = 64 << 10
_DEADLINE_S = 30


class CannotMount(Exception):
    """This machine or user has no file system to give."""


class SmallDisk:
    """Mounted at `folder` until closed, from an image beside it."""

    def __init__(self, folder: Path, megabytes: int):
        self.folder = folder
        self._image = folder.with_suffix(".image")
        self._filler = folder / "filler"
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
            raise CannotMount("a small file system needs root and mkfs.ext4")
        folder.mkdir(mode=0o700)
        with open(self._image, "wb") as image:
            image.truncate(megabytes * _MB)
        try:
            # -m 0: nothing is kept back for root, whom a test may run as.
            _run("mkfs.ext4", "-q", "-F", "-m", "0", self._image)
            _run("mount", "-o", "loop,nodev,nosuid", self._image, folder)
        except subprocess.CalledProcessError as e:
            self._remove_image()
            raise CannotMount(f"{' '.join(map(str, e.cmd))}: {e.stderr.strip()}") from None

    def fill(self, leave_bytes: int) -> int:
        """Writes a file until `leave_bytes` are free, or a little less. Returns
        what is free then. An earlier fill is undone first."""
        self._filler.unlink(missing_ok=True)
        with open(self._filler, "wb") as file:
            while (more := self.free_bytes() - leave_bytes) > 0:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size,
                                       min(more, max(_STEP, more - _STEP)))
                except OSError:  # the file system keeps some for itself
                    break
        return self.free_bytes()

    def free_bytes(self) -> int:
        room = os.statvfs(self.folder)
        return room.f_bavail * room.f_frsize

    def close(self) -> None:
        # Whatever still runs there is being killed: it must not keep the mount.
        subprocess.run(["umount", "--lazy", self.folder], capture_output=True, timeout=_DEADLINE_S)
        self._remove_image()

    def _remove_image(self) -> None:
        self._image.unlink(missing_ok=True)
        if not os.path.ismount(self.folder):
            self.folder.rmdir()


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True,
                   timeout=_DEADLINE_S)
