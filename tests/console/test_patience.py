"""A page's limit on the database: what takes too long is stopped, and nothing else is lost."""

import pytest
from django.db import OperationalError, connection

from console.patience import TooSlow, patience

pytestmark = pytest.mark.django_db


def run(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def test_what_is_quick_is_not_touched_and_the_limit_is_gone_after():
    before = run("SELECT current_setting('statement_timeout')")
    with patience(2):
        assert run("SELECT 7") == 7 and run("SELECT current_setting('statement_timeout')") == "2s"
    assert run("SELECT current_setting('statement_timeout')") == before


def test_what_takes_too_long_is_stopped_and_the_transaction_goes_on():
    with pytest.raises(TooSlow), patience(0.05):
        run("SELECT pg_sleep(5)")
    assert run("SELECT 7") == 7 and run("SELECT current_setting('statement_timeout')") == "0"


def test_another_error_is_not_taken_for_slowness():
    with pytest.raises(OperationalError, match="went away"), patience(2):
        raise OperationalError("the server went away")
