"""The Celery settings without which a killed worker loses work or a poison message loops (docs/operations.md)."""

import os

from strop.celery import app


def test_a_killed_child_or_worker_gives_its_message_back():
    assert app.conf.task_acks_late is True
    assert app.conf.task_reject_on_worker_lost is True
    assert app.conf.worker_prefetch_multiplier == 1


def test_no_task_outlives_the_visibility_timeout_so_none_runs_twice_at_once():
    assert app.conf.task_time_limit < app.conf.broker_transport_options["visibility_timeout"]


def test_the_visibility_timeout_is_the_same_in_all_three_places():
    timeout = app.conf.broker_transport_options["visibility_timeout"]
    assert app.conf.result_backend_transport_options["visibility_timeout"] == timeout
    assert app.conf.visibility_timeout == timeout


def test_unacknowledged_messages_are_looked_for_every_five_seconds_not_every_hundred():
    assert app.conf.broker_transport_options["unacked_restore_interval"] == 5
    assert app.conf.broker_transport_options["unacked_restore_throttle"] == 1


def test_only_json_travels_and_no_result_is_kept():
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_serializer == "json"
    assert app.conf.result_backend is None


def test_publishing_gives_up_quickly_because_the_sweep_will_find_the_row():
    assert app.conf.task_publish_retry_policy["max_retries"] <= 1


def test_workers_stop_softly_and_do_not_grow_without_bound():
    assert app.conf.worker_soft_shutdown_timeout == 30
    assert os.environ["REMAP_SIGTERM"] == "SIGQUIT"
    assert app.conf.worker_max_memory_per_child > 0
