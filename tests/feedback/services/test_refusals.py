"""What each key was last refused."""

import pytest

from feedback.models import LastRefusal
from registry.tenancy import tenant
from tests.feedback.api.test_events import signal, turn

pytestmark = pytest.mark.django_db


def rows(project) -> list[tuple]:
    with tenant(project.id):
        found = LastRefusal.objects.order_by("outcome")
        return list(found.values_list("outcome", "field", "item_id", "count"))


def test_nothing_is_noted_when_all_went_well(outcomes, project):
    assert outcomes(turn(), signal(), turn()) == ["accepted", "accepted", "duplicate"]
    assert rows(project) == []


def test_the_newest_refusal_of_each_outcome_is_kept_with_its_count(outcomes, project):
    outcomes(turn(), signal(kind="wave"), signal("g2", value=float("nan")))
    outcomes(turn(completion="other"), signal("g3", kind=""))
    assert rows(project) == [("conflict", "id", "t1", 1), ("invalid", "kind", "g3", 3)]


def test_a_request_refused_whole_is_noted_under_its_status(send, project):
    assert send(body=b"{").status_code == 400
    assert rows(project)[0][0] == "request:400"


def test_a_refusal_names_the_key(send, project):
    send(body=b"{")
    with tenant(project.id):
        assert LastRefusal.objects.get().key.startswith("key:strop_")


def test_each_project_sees_its_own_refusals(send, project, other_project):
    send(body=b"{", to=other_project)
    assert rows(project) == [] and len(rows(other_project)) == 1


def test_hostile_ids_are_noted_readably(outcomes, project):
    assert outcomes(signal("a\x00b" + "x" * 200)) == ["invalid"]
    ((_, field, item_id, _),) = rows(project)
    assert field == "id" and (item_id is None or ("\x00" not in item_id and len(item_id) <= 128))


def test_one_key_makes_at_most_one_row_for_each_outcome(outcomes, project):
    for i in range(5):
        outcomes(signal(f"g{i}", **{f"unknown_{i}": 1}))
    assert len(rows(project)) == 1
