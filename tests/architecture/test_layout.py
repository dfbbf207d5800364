"""The layout every other thing relies on."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
ROOMS = [CHECKOUT / name for name in ("platform", "feedback", "evals", "rl_online")]
SOURCES = sorted(path for room in ROOMS for path in room.rglob("*.py") if "migrations" not in path.parts)


def python(code: str, **env: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, env=os.environ | env, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_platform_is_the_standard_librarys_from_the_checkout():
    assert not (CHECKOUT / "platform" / "__init__.py").exists()
    assert not (CHECKOUT / "platform" / "platform.py").exists()
    assert python("import platform; print(platform.python_version())").startswith("3.")


def test_nothing_the_web_or_a_worker_imports_reaches_torch():
    loaded = python(
        "import sys, django\n"
        "import strop.asgi\n"
        "from strop.celery import app\n"
        "app.loader.import_default_modules()\n"
        "from django.urls import get_resolver\n"
        "get_resolver().url_patterns\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'transformers', 'tensorflow'}))\n"
        "print('jobs.tasks' in sys.modules)",
        DJANGO_SETTINGS_MODULE="strop.settings",
    )
    assert loaded.split("\n")[:2] == ["[]", "True"]


def test_package_init_files_import_nothing():
    """But those of models, which Django looks for in one module."""
    full = [path for path in SOURCES if path.name == "__init__.py" and _statements(path)]
    assert [path for path in full if path.parent.name != "models"] == []


def _statements(path: Path) -> list[ast.stmt]:
    return [node for node in ast.parse(path.read_text()).body if not isinstance(node, ast.Expr)]


@pytest.mark.parametrize(
    ("what", "pattern", "allowed"),
    [
        ("pickle and its kin", r"\bimport (pickle|cPickle|dill|joblib|shelve|marshal)\b|torch\.load\(", set()),
        ("remote code", r"trust_remote_code\s*=\s*True", set()),
        (
            "unescaped HTML",
            r"\bmark_safe\(|\|\s*safe\b|\bSafeString\(|autoescape off",
            {"platform/console/templatetags/model_text.py"},
        ),
        ("a shell", r"shell\s*=\s*True|os\.system\(", set()),
        ("archive extraction", r"\.extractall\(|\.extract\(", set()),
    ],
)
def test_no_module_walks_around_a_door(what: str, pattern: str, allowed: set[str]):
    hits = [
        str(path.relative_to(CHECKOUT))
        for path in [*SOURCES, *(CHECKOUT / "templates").rglob("*.html")]
        if re.search(pattern, path.read_text()) and str(path.relative_to(CHECKOUT)) not in allowed
    ]
    assert hits == [], what


@pytest.mark.parametrize("room", ["tests", "platform", "feedback", "evals", "rl_online", "docs", "benchmarks"])
def test_no_file_names_the_machine_it_was_made_on(room: str):
    pattern = re.compile(r"/(work|farm)/(main|steering|in|shared|\.library)\b")
    hits = [
        str(path)
        for path in (CHECKOUT / room).rglob("*")
        if path.suffix in (".py", ".md", ".html", ".js", ".toml")
        and path != Path(__file__).resolve()
        and "vendor" not in path.parts
        and pattern.search(path.read_text(errors="replace"))
    ]
    assert hits == []


def test_migrations_are_up_to_date():
    result = subprocess.run(
        [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"],
        cwd=CHECKOUT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No changes detected" in result.stdout, result.stdout + result.stderr
