"""The Strop home folder: where everything that is not a database row lives, and the secrets made on first use.

As root the embedded servers run as an unprivileged user, who may not be able to enter the home folder; their data and
sockets then lie under /var/lib/strop/<digest of the home path>.
"""

import contextlib
import hashlib
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

MAX_SOCKET_PATH = 100  # sockaddr_un.sun_path holds 107 bytes; leave room for the file name's suffixes


@dataclass(frozen=True)
class Home:
    root: Path

    @property
    def digest(self) -> str:
        return hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:12]

    @property
    def server_root(self) -> Path:
        """Where the embedded servers keep data and sockets."""
        return Path("/var/lib/strop") / self.digest if os.geteuid() == 0 else self.root

    @property
    def data(self) -> Path:
        return self.server_root / "data"

    @property
    def sockets(self) -> Path:
        """Folder of the embedded servers' unix sockets; moved to a short private path when the home's is too long."""
        preferred = self.server_root / "run"
        if len(str(preferred)) + len("/.s.PGSQL.5432.lock") <= MAX_SOCKET_PATH:
            return preferred
        return Path("/tmp") / f"strop-{os.geteuid()}-{self.digest}"

    @property
    def engine_socket(self) -> Path:
        """The engine runs as ourselves, so its socket may lie in the home unless the path is too long."""
        preferred = self.root / "run" / "engine.sock"
        return preferred if len(str(preferred)) <= MAX_SOCKET_PATH else self.sockets / "engine.sock"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def batches(self) -> Path:
        return self.root / "batches"

    @property
    def texts(self) -> Path:
        """Sets of general text that people put here; updates are measured on them, none learns from them."""
        return self.root / "texts"

    @property
    def corpora(self) -> Path:
        """<project>/<digest>: what mid-training reads."""
        return self.root / "corpora"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    def secret(self, name: str) -> str:
        """A random secret of 384 bits, made once and kept in a file only its owner may read."""
        file = self.root / "secrets" / name
        if not file.exists():
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)  # turns and logs are nobody else's to read
            file.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor, draft = tempfile.mkstemp(dir=file.parent)  # 0600
            with os.fdopen(descriptor, "w") as handle:
                handle.write(secrets.token_urlsafe(48))
                handle.flush()
                os.fsync(handle.fileno())
            with contextlib.suppress(FileExistsError):  # of several at once, the first to link is right
                os.link(draft, file)
            os.unlink(draft)
        return file.read_text()
