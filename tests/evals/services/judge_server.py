"""A judge behind an OpenAI-compatible address: every model of it behaves as told."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Reply = tuple[int, str]  # status, and the text of the completion


class JudgeServer:
    """`behave(model, data, n) -> Reply`: `data` is what is judged, `n` how often this model was asked before."""

    def __init__(self, behave: Callable[[str, dict, int], Reply]) -> None:
        self.asked: dict[str, int] = {}
        lock, outer = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    n = outer.asked.get(body["model"], 0)
                    outer.asked[body["model"]] = n + 1
                status, text = behave(body["model"], json.loads(body["messages"][1]["content"]), n)
                reply = {
                    "model": body["model"],
                    "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 100, "completion_tokens": 10},
                }
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def verdict(letter: str) -> Reply:
    return 200, json.dumps({"rationale": "because", "verdict": letter})


def prefers(good: Callable[[str], bool]) -> Callable[[str, dict, int], Reply]:
    """A fair judge that likes answers for which `good` is true."""

    def behave(model: str, data: dict, n: int) -> Reply:
        a, b = good(data["answer_A"]), good(data["answer_B"])
        return verdict("tie" if a == b else "A" if a else "B")

    return behave
