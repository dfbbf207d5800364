"""Django settings: one file, every value from a typed environment reader with a default that works on one machine."""

from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from strop import env
from strop.home import Home
from strop.local.ports import own_url

BASE_DIR = Path(__file__).resolve().parents[2]
HOME = Home(env.path("STROP_HOME", BASE_DIR / ".strop"))

PRODUCTION = env.flag("STROP_PRODUCTION", False)
DEBUG = env.flag("STROP_DEBUG", False)
HOST = env.text("STROP_HOST", "127.0.0.1")
PORT = env.integer("STROP_PORT", 8000)
PUBLIC_URL = env.text("STROP_PUBLIC_URL", own_url(HOST, PORT)).rstrip("/")
WEB_URL = env.text("STROP_WEB_URL", PUBLIC_URL).rstrip("/")  # by which our own processes reach web, past any proxy
SECRET_KEY = env.text("STROP_SECRET_KEY") or HOME.secret("django")
LOOPBACK = ["127.0.0.1", "localhost", "[::1]"]  # by these our own processes call web, in production too
# Our own processes call web by the address it listens on, where that is one of this machine's.
LISTENS = [] if HOST in ("0.0.0.0", "::") else [f"[{HOST}]" if ":" in HOST else HOST]
ALLOWED_HOSTS = [*env.items("STROP_ALLOWED_HOSTS"), *LOOPBACK, *(host for host in LISTENS if host not in LOOPBACK)]
TRUSTED_PROXIES = env.items("STROP_TRUSTED_PROXIES", ["127.0.0.1", "::1"])  # whose X-Forwarded-* headers are believed
CSRF_TRUSTED_ORIGINS = env.items("STROP_CSRF_TRUSTED_ORIGINS")

DEVICE = env.choice("STROP_DEVICE", "auto", ["auto", "cpu", "cuda"])
THREADS = env.integer("STROP_THREADS", 0)  # 0: as many as there are cores
TRAINER = env.choice("STROP_TRAINER", "embedded", ["embedded", "torchrun"])  # in the updater's process, or over ranks
TRAINER_RANKS = env.integer("STROP_TRAINER_RANKS", 0)  # of torchrun; 0: one for each GPU
JOB_LEASE_S = env.number("STROP_JOB_LEASE_S", 30.0)  # a dead worker's job is taken over after this
SANDBOX_ALLOW_NONE = env.flag("STROP_SANDBOX_ALLOW_NONE", False)
JUDGE_URL = env.text("STROP_JUDGE_URL")  # an OpenAI-compatible base URL; empty: the frozen base model judges
JUDGE_MODEL = env.text("STROP_JUDGE_MODEL")
JUDGE_KEY = env.text("STROP_JUDGE_KEY")
JUDGE_KEYS = env.items("STROP_JUDGE_KEYS")  # <base URL>=<key> of other judges; a key goes to its address only
METRICS_TOKEN = env.text("STROP_METRICS_TOKEN")  # in production /metrics wants it as Bearer
# Below which folders of this machine a model may be taken from by whoever may add a policy.
MODEL_ROOTS = env.items("STROP_MODEL_ROOTS", [str(HOME.root / "incoming")] if PRODUCTION else ["/"])
CORPUS_ROOT = env.text("STROP_CORPUS_ROOT")  # below which corpora may be made of files; empty: of none
OUTBOUND_ALLOW = env.items("STROP_OUTBOUND_ALLOW")  # host[:port] that may be private, e.g. an own engine

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django_htmx",
    "csp",
    "jobs",
    "registry",
    "feedback",
    "evals",
    "rl_online",
    "console",
    "strop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "registry.middleware.RequestIdMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "strop.urls"
ASGI_APPLICATION = "strop.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "console.context.console",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False
STATIC_URL = "/static/"
STATIC_ROOT = HOME.root / "static"
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
LOGIN_URL = "console:sign-in"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "console:sign-in"
DATA_UPLOAD_MAX_MEMORY_SIZE = 17 * 1024 * 1024  # POST /v1/events takes 16 MiB and answers 413 itself

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_SSL_REDIRECT = PRODUCTION and env.flag("STROP_SSL_REDIRECT", True)
SECURE_REDIRECT_EXEMPT = ["^(healthz|readyz|metrics)$", "^v1/"]  # probes and our own engine come by plain loopback
SECURE_HSTS_SECONDS = env.integer("STROP_HSTS_SECONDS", 3600) if PRODUCTION else 0
CSRF_FAILURE_VIEW = "console.views.errors.csrf_failed"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        # Plotly sets style attributes on the SVG it draws; scripts stay strict.
        "style-src": ["'self'", "'unsafe-inline'"],
        "img-src": ["'self'", "data:"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'self'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}


def _postgres(url: str, role: str, password: str) -> dict[str, object]:
    """A Django database entry for `url`, or for the embedded server of this home when it is empty."""
    common: dict[str, object] = {"ENGINE": "django.db.backends.postgresql", "CONN_HEALTH_CHECKS": True}
    if not url:
        return common | {"NAME": "strop", "USER": role, "PASSWORD": password, "HOST": str(HOME.sockets), "PORT": "5432"}
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise env.BadSetting(f"DATABASE_URL starts with {parts.scheme!r}; use postgresql://user:password@host/name")
    options = dict(parse_qsl(parts.query))
    return common | {
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", parts.hostname or ""),
        "PORT": str(parts.port or options.pop("port", "")),
        "OPTIONS": options,
    }


DATABASE_URL = env.text("DATABASE_URL")
DATABASES = {
    "default": _postgres(DATABASE_URL, "strop_app", "" if DATABASE_URL else HOME.secret("postgres-app")),
    # Migrations only: owns the tables, so that the app's own role can be held to row-level security.
    "owner": _postgres(
        env.text("DATABASE_OWNER_URL") or DATABASE_URL,
        "strop_owner",
        "" if DATABASE_URL else HOME.secret("postgres-owner"),
    ),
}
if env.flag("STROP_DB_POOL", False):
    DATABASES["default"].setdefault("OPTIONS", {})
    DATABASES["default"]["OPTIONS"]["pool"] = {  # type: ignore[index]
        "min_size": 2,
        "max_size": env.integer("STROP_DB_POOL_SIZE", 20),
        "timeout": 10,
    }
else:
    DATABASES["default"]["CONN_MAX_AGE"] = 60

REDIS_URL = env.text("REDIS_URL")
CELERY_BROKER_URL = REDIS_URL or f"redis+socket://{HOME.sockets}/valkey.sock"

EMAIL = env.email("EMAIL_URL", outbox=HOME.root / "mail")
EMAIL_BACKEND, EMAIL_FILE_PATH, EMAIL_TIMEOUT = EMAIL.backend, EMAIL.folder, 15
EMAIL_HOST, EMAIL_PORT, EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = EMAIL.host, EMAIL.port, EMAIL.user, EMAIL.password
EMAIL_USE_TLS, EMAIL_USE_SSL = EMAIL.starttls, EMAIL.ssl
DEFAULT_FROM_EMAIL = env.text("EMAIL_FROM", "strop@localhost")

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.text("STROP_LOG_LEVEL", "INFO")},
    "loggers": {"httpx": {"level": "WARNING"}, "django.request": {"level": "ERROR"}},
}
CODE_VERSION = version("strop")
