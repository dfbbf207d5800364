"""Which TCP port the web process gets."""

import errno
import socket


class PortTaken(RuntimeError):
    """Somebody else listens there; the message names a free port."""


LOOPBACK = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def own_url(host: str, port: int) -> str:
    """By which our own processes reach what listens on `host`: a wildcard is reached by loopback."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}"


def claim_port(host: str, port: int) -> int:
    """`port` if it is free on `host`, any free one for 0; raises PortTaken."""
    if port == 0:
        return _free_port(host, 0) or 0
    if is_free(host, port):
        return port
    free = next((other for other in range(port + 1, min(port + 100, 65536)) if is_free(host, other)), None)
    raise PortTaken(f"port {port} on {host} is taken; {free} is free: strop up --port {free}")


def is_free(host: str, port: int) -> bool:
    return _free_port(host, port) is not None


def _free_port(host: str, port: int) -> int | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        return probe.getsockname()[1]
