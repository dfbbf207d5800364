"""The web as the puller sees it, over real HTTP from real folders: head, policies, objects and held."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from registry.internal_token import BadToken, Purpose, read
from rl_online.weights.manifest import read_manifest

OBJECTS = "/v1/weights/objects/"
SECRET = "secret"


def want(folder: Path, *, role: str = "serving", delta: Path | None = None, base_version: int = 1) -> dict[str, Any]:
    """One entry of a head, for a folder `<root>/<policy>/v000003`."""
    prefix = f"{OBJECTS}{folder.parent.name}"
    offer = delta and {
        "from": base_version,
        "path": f"{prefix}/deltas/{delta.name}",
        "size": delta.stat().st_size,
    }
    manifest = read_manifest(folder)
    return {
        "version": manifest.version,
        "role": role,
        "tree_digest": manifest.tree_digest,
        "full": f"{prefix}/{folder.name}",
        "delta": offer,
    }


def is_of_an_engine(authorization: str) -> bool:
    try:
        return read(SECRET, authorization.removeprefix("Bearer ")).purpose is Purpose.WEIGHTS
    except BadToken:
        return False


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """An engine that stops leaves its long poll; that is no error."""


class Web:
    """Serves the folders under `root`; `wants` is what the head says. Use as a context manager; it may be reopened."""

    def __init__(self, root: Path, policy: str) -> None:
        self.root = root
        self.policy = policy
        self.reports: list[dict[str, Any]] = []
        self.fetched: list[tuple[str, int]] = []  # path and bytes of every object served
        self.refused = 0
        self._wants: list[dict[str, Any]] = []
        self._etag = 0
        self._changed = threading.Condition()
        self._port = 0

    def __enter__(self) -> "Web":
        self._server = Server(("127.0.0.1", self._port), self._handler())
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def say(self, *wants: dict[str, Any]) -> None:
        with self._changed:
            self._wants, self._etag = list(wants), self._etag + 1
            self._changed.notify_all()

    def wait_for_report(self, accepts, *, timeout_s: float = 30) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for report in list(self.reports):
                if accepts(report):
                    return report
            time.sleep(0.02)
        raise AssertionError(f"no such report among {self.reports}")

    def wait_until_held(self, *versions: int) -> dict[str, Any]:
        return self.wait_for_report(lambda report: [row["version"] for row in report["held"]] == list(versions))

    def _head(self, after: str, wait_s: float) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: str(self._etag) != after, timeout=wait_s)
            head = {"etag": str(self._etag), "policy": self.policy, "want": self._wants}
        return json.dumps(head).encode()

    def _handler(web) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if not is_of_an_engine(self.headers["authorization"]):
                    web.refused += 1
                    self.answer(401, b"{}")
                elif url.path == "/v1/weights/policies":
                    self.answer(200, json.dumps({"policies": [web.policy]}).encode())
                elif url.path == "/v1/weights/head":
                    query = parse_qs(url.query)
                    self.answer(200, web._head(query.get("after", [""])[0], float(query["wait"][0])))
                else:
                    body = (web.root / url.path.removeprefix(OBJECTS)).read_bytes()
                    web.fetched.append((url.path, len(body)))
                    self.answer(200, body)

            def do_POST(self) -> None:
                assert self.path == "/v1/weights/held"
                web.reports.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.answer(204, b"")

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
