"""`strop up`: the whole product on one machine, from an empty folder to a ready line, until Ctrl-C.

Standard output carries one line for scripts once the site answers:
`READY http://127.0.0.1:8000 sign_in=http://... key=strop_...` (the last two only where there is one to show).
"""

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping

from strop.home import Home
from strop.local import ports
from strop.local.belonging import set_aside_strangers
from strop.local.bootstrap import Bootstrapped
from strop.local.lock import locked
from strop.local.postgres import Postgres
from strop.local.processes import embedded_servers, product
from strop.local.service import Service
from strop.local.supervisor import StopAsked, Supervisor

# Commands on this home print the same links and judge the same settings, whatever shell they are called from.
TOLD = (
    "STROP_HOST", "STROP_PORT", "STROP_WEB_URL", "STROP_PUBLIC_URL", "STROP_PRODUCTION", "STROP_ALLOWED_HOSTS",
    "STROP_CSRF_TRUSTED_ORIGINS", "STROP_TRUSTED_PROXIES",
)  # fmt: skip

Program = Callable[[Supervisor, str, Mapping[str, str], Bootstrapped], None]


def stay(supervisor: Supervisor, url: str, environment: Mapping[str, str], first: Bootstrapped) -> None:
    """Print the ready line and keep everything running until SIGINT or SIGTERM."""
    _announce(url, first)
    supervisor.run()


def up(
    home: Home,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    is_production: bool = False,
    without: Collection[str] = (),
    shown: Collection[str] | None = None,
    extra: Mapping[str, str] | None = None,
    program: Program = stay,
) -> None:
    """Start everything, run `program` once all is ready, then stop everything.

    `shown`: whose output the terminal gets (None: all). `extra`: added to the environment of every process. Raises
    AlreadyRunning, PortTaken, BinaryMissing, UnsafeFolder, RuntimeError or TimeoutError.
    """
    with locked(home) as lock_descriptor:
        port = ports.claim_port(host, port)
        url = ports.own_url(host, port)
        environment = _environment(home, host=host, port=port, url=url, is_production=is_production) | dict(extra or {})
        told = {name: value for name, value in {**os.environ, **environment}.items() if name in TOLD}
        supervisor = Supervisor(home, url=url, lock_descriptor=lock_descriptor, shown=shown, told=told)
        try:
            if aside := set_aside_strangers(home):
                supervisor.log.say(f"the home that made the data at this place is gone; its data is kept in {aside}")
            for server in embedded_servers(home):
                supervisor.start(server)
                supervisor.wait_ready(server.name)
                if server.name == "postgres":
                    Postgres.of(home).ensure_database()
            first = _bootstrap(supervisor, environment)
            services = [what for what in product(home, url=url, environment=environment) if what.name not in without]
            for what in services:
                supervisor.start(what)
            for what in reversed(services):
                supervisor.wait_ready(what.name)
            program(supervisor, url, environment, first)
        except StopAsked:
            supervisor.log.say("stopping")
        finally:
            supervisor.stop()


def _environment(home: Home, *, host: str, port: int, url: str, is_production: bool) -> dict[str, str]:
    home.secret("internal")  # made now: the engine reads it from its file, web and updater by its name
    chosen = {
        "STROP_HOME": str(home.root),
        "STROP_HOST": host,
        "STROP_PORT": str(port),
        "STROP_WEB_URL": url,
        "STROP_ENGINE_SOCKET": str(home.engine_socket),
        "STROP_ENGINE_CACHE": str(home.root / "engine"),
        "STROP_TOKEN_FILE": str(home.root / "secrets" / "internal"),
        "DJANGO_SETTINGS_MODULE": "strop.settings",
        "PYTHONUNBUFFERED": "1",
    }
    return chosen | ({"STROP_PRODUCTION": "1"} if is_production else {})


def _bootstrap(supervisor: Supervisor, environment: Mapping[str, str]) -> Bootstrapped:
    what = Service(
        name="setup", command=[sys.executable, "-m", "strop.local.bootstrap"], environment=environment, stop_s=5
    )
    return Bootstrapped(**json.loads(supervisor.run_once(what)))


def _announce(url: str, first: Bootstrapped) -> None:
    public = os.environ.get("STROP_PUBLIC_URL", "").rstrip("/") or url
    sign_in = f"{public}{first.sign_in_path}" if first.sign_in_path else ""
    lines = [f"Strop is ready at {public}"]
    if sign_in:
        lines.append(f"Sign in (once, within a day): {sign_in}")
    if first.key:
        lines.append(f"First key of project {first.project}, shown this once: {first.key}")
    print("\n" + "\n".join(lines) + "\nCtrl-C stops everything.\n", file=sys.stderr, flush=True)
    fields = [f"sign_in={sign_in}"] * bool(sign_in) + [f"key={first.key}"] * bool(first.key)
    print(" ".join(["READY", url, *fields]), flush=True)
