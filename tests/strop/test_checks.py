import pytest
from django.core.checks import run_checks
from django.db import connections
from pytest_django import Settings

from strop.checks import check_role, check_settings


@pytest.fixture
def production(settings: Settings) -> Settings:
    """Settings that are safe, for a test to spoil one of."""
    settings.DEBUG = False
    settings.SECRET_KEY = "k" * 64
    settings.ALLOWED_HOSTS = ["strop.example.org"]
    settings.PUBLIC_URL = "https://strop.example.org"
    settings.CSRF_TRUSTED_ORIGINS = ["https://strop.example.org"]
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    settings.SANDBOX_ALLOW_NONE = False
    return settings


def ids(problems) -> list[str]:
    return [problem.id for problem in problems]


def test_safe_settings_pass(production: Settings):
    assert check_settings(None) == []


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("DEBUG", True, "strop.E001"),
        ("SECRET_KEY", "short", "strop.E002"),
        ("SECRET_KEY", "django-insecure-" + "k" * 50, "strop.E002"),
        ("ALLOWED_HOSTS", ["*"], "strop.E003"),
        ("ALLOWED_HOSTS", [".example.org"], "strop.E003"),
        ("ALLOWED_HOSTS", [], "strop.E004"),
        ("ALLOWED_HOSTS", ["127.0.0.1", "localhost"], "strop.E004"),
        ("SESSION_COOKIE_SECURE", False, "strop.E005"),
        ("CSRF_COOKIE_SECURE", False, "strop.E005"),
        ("PUBLIC_URL", "http://strop.example.org", "strop.E006"),
        ("CSRF_TRUSTED_ORIGINS", [], "strop.E007"),
        ("CSRF_TRUSTED_ORIGINS", ["http://strop.example.org"], "strop.E007"),
        ("CSRF_TRUSTED_ORIGINS", ["https://*.example.org"], "strop.E007"),
        ("SANDBOX_ALLOW_NONE", True, "strop.E008"),
    ],
)
def test_each_unsafe_setting_is_named(production: Settings, name: str, value: object, wanted: str):
    setattr(production, name, value)
    problems = check_settings(None)
    assert ids(problems) == [wanted]
    assert problems[0].hint


def test_the_checks_run_with_deploy_and_not_in_development(production: Settings):
    production.SANDBOX_ALLOW_NONE = True
    assert "strop.E008" in ids(run_checks(include_deployment_checks=True))
    assert "strop.E008" not in ids(run_checks())


def test_the_tests_role_is_the_apps_own_and_is_bound_by_row_level_security(db):
    assert check_role(None, databases=["default"]) == []


@pytest.mark.django_db(databases=["default", "owner"])
def test_the_owner_role_is_refused_as_the_apps_role(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections["default"], "cursor", connections["owner"].cursor)
    assert ids(check_role(None, databases=["default"])) == ["strop.E020", "strop.E021"]
