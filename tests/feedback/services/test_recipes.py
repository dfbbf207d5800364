"""Versions of the label recipe: made, put in force, never changed; and what another one would have said."""

from datetime import UTC, datetime, timedelta

import pytest

from feedback.labels import Recipe
from feedback.models import Label, LabelRecipe, RecipeActivation, Turn
from feedback.sampling import sample_turns
from feedback.services import label, recipes
from feedback.services.record import record_items
from feedback.services.relabel import relabel
from feedback.wire import SignalItem, TurnItem
from registry.errors import Conflict, InvalidInput, NotFound
from registry.models import AuditEvent
from registry.services import create_project
from registry.tenancy import tenant

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC) - timedelta(hours=1)
DAY = {"since": NOW - timedelta(hours=12), "until": NOW + timedelta(hours=12)}


@pytest.fixture
def inside(project):
    with tenant(project.id):
        yield project


def record(project, id: str, *signals: tuple[str, float | None], user: str | None = "u") -> None:
    at = NOW
    items = [TurnItem(id=id, session="s", at=at, prompt="p", completion="c", user=user)]
    items += [
        SignalItem(id=f"{id}-{i}", kind=kind, value=value, turn=id, at=at + timedelta(seconds=5 + i), user=user)
        for i, (kind, value) in enumerate(signals)
    ]
    record_items(project.id, items, received_at=at)
    with tenant(project.id):
        label.label_turns(project.id, [id], now=at + timedelta(minutes=5))


def test_the_default_recipe_is_version_1_and_in_force(inside):
    assert recipes.current_recipe() == (1, Recipe())


def test_a_new_version_is_in_force_only_once_it_is_activated(inside):
    made = recipes.create_recipe({"partial_threshold": 0.3}, actor="ann")
    assert (made.version, recipes.current_recipe()[0]) == (2, 1)
    recipes.activate_recipe(2, actor="ann")
    assert recipes.current_recipe() == (2, Recipe(partial_threshold=0.3))


def test_an_older_version_may_be_put_in_force_again(inside):
    recipes.create_recipe({"partial_threshold": 0.3}, actor="ann")
    recipes.activate_recipe(2, actor="ann")
    recipes.activate_recipe(1, actor="bob", reason="too kind")
    assert recipes.current_recipe()[0] == 1
    assert list(RecipeActivation.objects.order_by("id").values_list("recipe__version", "actor")) == [
        (2, "ann"),
        (1, "bob"),
    ]


def test_making_and_activating_are_audited_with_who_and_why(inside):
    recipes.create_recipe({"edit_value": 0.2}, actor="ann", reason="edits cost us time")
    recipes.activate_recipe(2, actor="bob", reason="agreed")
    found = AuditEvent.objects.filter(object_kind="label recipe").order_by("id")
    assert list(found.values_list("verb", "object_id", "actor", "reason")) == [
        ("create", "2", "ann", "edits cost us time"),
        ("activate", "2", "bob", "agreed"),
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"partial_threshold": 1.5}, "partial_threshold"),
        ({"edit_value": float("nan")}, "edit_value"),
        ({"correction_value": 0.5}, "correction_value"),
        ({"retry_at_once_s": "30"}, "retry_at_once_s"),
        ({"retry_at_once_s": True}, "retry_at_once_s"),
        ({"kindness": 1}, "kindness"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused_with_the_field_named(inside, body, field):
    with pytest.raises(InvalidInput) as caught:
        recipes.create_recipe(body, actor="ann")
    assert caught.value.field == field and LabelRecipe.objects.count() == 0


def test_a_version_that_says_the_same_is_not_made_again(inside):
    with pytest.raises(Conflict, match="label recipe 1 says the same"):
        recipes.create_recipe(Recipe().to_json(), actor="ann")


def test_what_is_in_force_cannot_be_activated_and_what_is_not_there_neither(inside):
    with pytest.raises(Conflict, match="in force already"):
        recipes.activate_recipe(recipes.recipe_in_force().version)
    with pytest.raises(NotFound):
        recipes.activate_recipe(9)


def test_versions_of_one_project_are_unknown_in_another(inside):
    recipes.create_recipe({"edit_value": 0.2}, actor="ann")
    with tenant(create_project("elsewhere", "Elsewhere").id), pytest.raises(NotFound):
        recipes.find_recipe(2)


def test_labels_name_the_version_in_force_when_they_were_made(project):
    record(project, "t1", ("partial_accept", 0.4))
    with tenant(project.id):
        recipes.create_recipe({"partial_threshold": 0.3}, actor="ann")
        recipes.activate_recipe(2, actor="ann")
    record(project, "t2", ("partial_accept", 0.4))
    with tenant(project.id):
        found = Label.objects.order_by("id").values_list("turn__turn_id", "recipe_version", "outcome")
        assert list(found) == [("t1", 1, "reject"), ("t2", 2, "accept")]


# --- what another recipe would have said ---


def test_every_turn_of_the_sample_is_in_one_cell(project):
    record(project, "kept", ("partial_accept", 0.4))
    record(project, "yes", ("accept", None))
    record(project, "no", ("reject", None))
    record(project, "hush")
    with tenant(project.id):
        found = relabel(Recipe(), Recipe(partial_threshold=0.3), **DAY)
    cells = {(cell.before, cell.after): cell.n for cell in found.cells}
    assert cells == {
        ("reject", "accept"): 1,
        ("accept", "accept"): 1,
        ("reject", "reject"): 1,
        ("silence", "silence"): 1,
    }
    assert found.num_changed == 1 and sum(cells.values()) == len(found.sampled.turns) == 4


def test_a_changed_turn_is_an_example_with_both_verdicts(project):
    record(project, "kept", ("partial_accept", 0.4))
    with tenant(project.id):
        (cell,) = relabel(Recipe(), Recipe(partial_threshold=0.3), **DAY).cells
    (change,) = cell.examples
    assert (change.turn.turn_id, change.before.reason, change.after.reason) == ("kept", "only 40% kept", "40% kept")


def test_another_value_under_the_same_outcome_is_counted_apart(project):
    record(project, "edited", ("edit", None))
    with tenant(project.id):
        (cell,) = relabel(Recipe(), Recipe(edit_value=0.1), **DAY).cells
    assert (cell.before, cell.after, cell.n, cell.num_other_value) == ("accept", "accept", 1, 1)


def test_accept_shares_before_and_after_come_with_n_and_interval(project):
    for i, kept in enumerate((0.4, 0.9)):
        record(project, f"t{i}", ("partial_accept", kept), user=f"u{i}")
    with tenant(project.id):
        found = relabel(Recipe(), Recipe(partial_threshold=0.3), **DAY)
    assert (found.before.n, found.before.value, found.before.interval) == (2, 0.5, "wilson")
    assert (found.after.value, found.after.high) == (1.0, 1.0) and 0 < found.after.low < 0.5


def test_without_turns_the_share_is_unknown_not_zero(inside):
    found = relabel(Recipe(), Recipe(edit_value=0.1), **DAY)
    assert found.before.value is None and found.cells == []


def test_looking_writes_nothing(project):
    record(project, "kept", ("partial_accept", 0.4))
    with tenant(project.id):
        before = (Label.objects.count(), Turn.objects.values_list("outcome", "label_id", "settled_at").get())
        relabel(Recipe(), Recipe(partial_threshold=0.3), **DAY)
        assert (Label.objects.count(), Turn.objects.values_list("outcome", "label_id", "settled_at").get()) == before
        assert not LabelRecipe.objects.filter(version=2).exists()


def test_labels_of_several_versions_in_the_sample_are_told_apart(project):
    record(project, "t1", ("accept", None))
    with tenant(project.id):
        recipes.create_recipe({"edit_value": 0.2}, actor="ann")
        recipes.activate_recipe(2, actor="ann")
    record(project, "t2", ("accept", None))
    with tenant(project.id):
        assert relabel(Recipe(), Recipe(edit_value=0.1), **DAY).label_versions == {1: 1, 2: 1}


def test_a_large_range_is_sampled_the_same_way_each_time(project):
    for i in range(25):
        record(project, f"t{i}")
    with tenant(project.id):
        first, again = sample_turns(**DAY, max_turns=10), sample_turns(**DAY, max_turns=10)
    assert (first.num_in_range, first.every) == (25, 3) and 8 <= len(first.turns) <= 9
    assert [turn.pk for turn in first.turns] == [turn.pk for turn in again.turns]
