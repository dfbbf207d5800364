"""The embedded Valkey: Celery's doorbell. It may lose everything without losing work, yet keeps an append-only file."""

import signal
from dataclasses import dataclass
from pathlib import Path

import redis

from strop.home import Home
from strop.local import binaries
from strop.local.account import Account, make_private_folder, server_account
from strop.local.service import Service


@dataclass(frozen=True, kw_only=True)
class Valkey:
    home: Home
    account: Account | None

    @classmethod
    def of(cls, home: Home) -> "Valkey":
        return cls(home=home, account=server_account())

    @property
    def socket(self) -> Path:
        return self.home.sockets / "valkey.sock"

    @property
    def data(self) -> Path:
        return self.home.data / "valkey"

    def service(self) -> Service:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.data),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        return Service(
            name="valkey",
            command=[
                binaries.valkey_server(self.account),
                *(part for key, value in settings.items() for part in (f"--{key}", value)),
            ],
            account=self.account,
            stop_signal=signal.SIGTERM,
            stop_s=10,
            prepare=self.prepare,
            is_ready=self.is_ready,
        )

    def prepare(self) -> None:
        make_private_folder(self.home.data, self.account)
        make_private_folder(self.home.sockets, self.account)
        make_private_folder(self.data, self.account)
        self.socket.unlink(missing_ok=True)

    def is_ready(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.socket), socket_timeout=2) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):  # BusyLoading, while the file is read, is a ConnectionError
            return False
