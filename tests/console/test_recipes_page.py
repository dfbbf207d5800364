"""Label recipes and reward specs on their pages: versions, differences, a look back, a new one, which is in force."""

import pytest
from django.utils import timezone

from console import recipe_forms as forms
from console.reads import recipes as reads
from console.reads.moves import moves
from console.reads.turn import paid_of
from feedback.models import Label, LabelRecipe
from feedback.services.recipes import recipe_in_force
from registry.errors import InvalidInput
from registry.models import AuditEvent
from registry.tenancy import tenant
from rl_online.models import LearningPlan, RewardSpec
from rl_online.rewards.composite import CODE_BODY, DEFAULT_BODY, parse_reward_spec, reward_of
from tests.console import factories
from tests.console.sending import send, signal, turn, work_off

LABEL = {"partial_threshold": "0.3", "edit_value": "0.5", "correction_value": "-0.5", "retry_at_once_s": "30"}
SPEC = {
    "label.weight": "1", "label.accept": "0.75", "label.reject": "-0.25", "label.silence": "0",
    "clip.0": "-1", "clip.1": "1", "scorers.unit_tests.weight": "0", "scorers.executability.weight": "0",
}  # fmt: skip


def get(client, path: str) -> str:
    return client.get(f"/p/editor/recipes{path}").content.decode()


def post(client, path: str, data: dict, **options):
    return client.post(f"/p/editor/recipes{path}", data, follow=True, **options)


# --- label recipes ---


def test_an_empty_project_shows_the_default_recipe_in_force(as_owner, project):
    html = get(as_owner, "")
    assert "label recipe 1" in html and "in force" in html and "made with the first policy" in html


def test_a_new_version_is_made_shown_with_its_difference_and_not_in_force(as_engineer, project):
    html = post(as_engineer, "/labels/new", LABEL | {"do": "make", "reason": "half is enough"}).content.decode()
    assert "Label recipe 2" in html and "Put in force" in html and "half is enough" in html
    assert "<code>partial_threshold</code>" in html and "<del>0.5</del>" in html and "<b>0.3</b>" in html
    with tenant(project.id):
        assert recipe_in_force().version == 1


def test_what_is_wrong_is_named_its_field_marked_and_nothing_kept(as_engineer, project):
    response = post(as_engineer, "/labels/new", LABEL | {"partial_threshold": "1.5", "do": "make"})
    html = response.content.decode()
    assert response.status_code == 400 and "must lie in [0, 1]" in html and html.count('aria-invalid="true"') == 1
    assert 'value="1.5"' in html
    with tenant(project.id):
        assert LabelRecipe.objects.count() == 1


@pytest.mark.parametrize("text", ["", "much", "nan", "1e999", "١", "0x1"])
def test_a_number_that_is_none_is_named(as_engineer, project, text):
    response = post(as_engineer, "/labels/new", LABEL | {"edit_value": text, "do": "make"})
    assert response.status_code in (200, 400) and (
        text == "١" or "<code>edit_value</code>" in response.content.decode()
    )


def test_looking_shows_the_change_with_examples_and_writes_nothing(as_engineer, project, api_key):
    key = api_key("ingest")
    send(as_engineer, key, turn("t1"), signal("g1", "partial_accept", value=0.4))
    work_off(project)
    html = post(as_engineer, "/labels/new", LABEL | {"do": "look", "look": "7d"}).content.decode()
    assert "What it would have said" in html and "only 40% kept" in html and "/p/editor/turns/t1" in html
    assert "nothing was written" in html and "All 1 turns of the last 7d" in html
    with tenant(project.id):
        assert LabelRecipe.objects.count() == 1 and Label.objects.get().outcome == "reject"


def test_a_version_that_is_not_in_force_can_be_looked_at_by_anyone(client, viewer, project):
    factories.make_recipes(project)
    client.force_login(viewer)
    html = get(client, "/labels/2?look=1d")
    assert "No turn was made in this time" in html and "Put in force</button>" not in html


def test_an_engineer_puts_a_version_in_force_and_the_trail_says_who_and_why(as_engineer, project):
    factories.make_recipes(project)
    html = post(as_engineer, "/labels/2/activate", {"reason": "agreed on Monday"}).content.decode()
    assert "Label recipe 2 is in force" in html
    html = get(as_engineer, "")
    assert "agreed on Monday" in html and "engineer" in html
    with tenant(project.id):
        assert recipe_in_force().version == 2


def test_putting_it_in_force_twice_is_said_not_done(as_engineer, project):
    factories.make_recipes(project)
    post(as_engineer, "/labels/2/activate", {})
    assert "in force already" in post(as_engineer, "/labels/2/activate", {}).content.decode()
    with tenant(project.id):
        assert AuditEvent.objects.filter(verb="activate").count() == 1


@pytest.mark.parametrize("path", ["/labels/99", "/labels/new?from=99", "/labels/new?from=x", "/rewards/default/9"])
def test_a_version_that_is_not_there_is_not_found(as_engineer, project, path):
    assert as_engineer.get(f"/p/editor/recipes{path}").status_code == 404


def test_hostile_reasons_are_shown_as_text(as_engineer, project):
    reason = "<script>alert(1)</script>\u202e\x00 x"
    post(as_engineer, "/labels/new", LABEL | {"do": "make", "reason": reason})
    for html in (get(as_engineer, ""), get(as_engineer, "/labels/2")):
        assert "<script>alert" not in html and "U+202E" in html and "\x00" not in html


# --- reward specs ---


@pytest.fixture
def policy(project):
    with tenant(project.id):
        return factories.make_policy()


def test_a_new_spec_is_made_and_learned_by_only_once_activated(as_engineer, policy, project):
    html = post(as_engineer, "/rewards/default/new", SPEC | {"label.silence": "-0.1", "do": "make"}).content.decode()
    assert "default v2" in html and "Let editor learn by it" in html and "<code>label.silence</code>" in html
    with tenant(project.id):
        assert LearningPlan.objects.get().reward_spec.version == 1
    html = post(as_engineer, "/rewards/default/2/activate", {"policy": "editor", "reason": "yes"}).content.decode()
    assert "editor learns by default v2" in html
    with tenant(project.id):
        assert LearningPlan.objects.get().reward_spec.version == 2


def test_the_recipe_for_code_stands_ready_to_start_from(as_engineer, policy, project):
    assert "/recipes/rewards/code/new" in get(as_engineer, "")
    html = get(as_engineer, "/rewards/code/new")
    assert 'value="0.4"' in html and 'value="generality"' in html


def test_a_breakdown_says_why_a_part_is_not_what_it_weighs():
    spec = parse_reward_spec(CODE_BODY)
    scores = {"executability": 1.0, "generality": 1.0, "test_share": 0.5, "code_quality": 1.0}
    paid = paid_of("code v1", reward_of(spec, outcome="accept", scores=scores).breakdown, value=0.7)
    notes = {part.name: part.note for part in paid.components}
    assert (notes["label"], notes["efficiency"]) == ("accept", "test_share is 0.5, at least 1 is asked")


def test_batches_of_a_spec_are_counted_with_it(as_engineer, policy, project):
    with tenant(project.id):
        factories.make_batch(policy, [factories.make_turn("s")])
        (row,) = reads.reward_specs()
    assert (row.num_batches, row.policies) == (1, ["editor"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"label.accept": "much"}, "label.accept"),
        ({"scorers.unit_tests.weight": "inf"}, "scorers.unit_tests.weight"),
        ({"clip.0": "2"}, "clip"),
        ({"gates.3.scorer": "unit_tests", "gates.3.at_least": "2", "gates.3.otherwise": "-1"}, "gates.0.at_least"),
        ({"gates.0.at_least": "1", "gates.0.otherwise": "-1"}, "gates.0.scorer"),
        ({"label.weight": "0"}, "label.weight"),
    ],
)
def test_what_is_wrong_in_a_spec_is_named_and_its_field_marked(as_engineer, policy, project, change, field):
    response = post(as_engineer, "/rewards/default/new", SPEC | change | {"do": "make"})
    html = response.content.decode()
    assert response.status_code == 400 and f"<code>{field}</code>" in html and 'aria-invalid="true"' in html
    with tenant(project.id):
        assert RewardSpec.objects.count() == 1


def test_the_form_of_a_stored_spec_gives_back_the_same_body():
    body = DEFAULT_BODY | {"gates": [{"scorer": "unit_tests", "at_least": 1.0, "otherwise": -0.25}]}
    scorers = ["executability", "unit_tests"]
    form = forms.spec_form(body, scorers)
    posted = {entry.name: entry.value for entry in [*form.outcomes, *form.scorers]}
    for gate in form.gates:
        posted |= {entry.name: entry.value for entry in (gate.scorer, gate.at_least, gate.otherwise)}
    assert forms.spec_body(posted, scorers) == body


def test_the_form_keeps_what_a_scorer_says_beside_its_weight():
    scorers = list(CODE_BODY["scorers"])
    form = forms.spec_form(CODE_BODY, scorers)
    posted = {entry.name: entry.value for entry in [*form.outcomes, *form.scorers]}
    made = forms.spec_body(posted | {"scorers.test_share.weight": "0.2"}, scorers, CODE_BODY)
    assert made["scorers"]["efficiency"] == CODE_BODY["scorers"]["efficiency"]
    assert made["scorers"]["test_share"] == {"weight": 0.2}


def test_a_scorer_whose_weight_is_emptied_is_left_out():
    assert forms.spec_body(SPEC | {"scorers.unit_tests.weight": " "}, ["unit_tests"])["scorers"] == {}


def test_an_empty_number_is_refused_by_its_path():
    with pytest.raises(InvalidInput) as caught:
        forms.spec_body(SPEC | {"clip.1": ""}, [])
    assert caught.value.field == "clip.1"


def test_looking_back_shows_what_a_spec_would_have_paid(as_engineer, policy, project):
    with tenant(project.id):
        factories.make_turn("s", outcome="silence", signals=("shown",))
    html = post(
        as_engineer, "/rewards/default/new", SPEC | {"label.silence": "-0.5", "do": "look", "look": "1d"}
    ).content.decode()
    assert "1 of 1 settled turns would earn another reward" in html and "negative" in html
    with tenant(project.id):
        assert RewardSpec.objects.count() == 1


def test_differences_are_found_leaf_by_leaf():
    before, after = {"a": {"b": 1.0}, "c": [1]}, {"a": {"b": 2.0}, "c": [1, 2]}
    found = [(one.path, one.before, one.after) for one in reads.differences(before, after)]
    assert found == [("a.b", "1", "2"), ("c.1", None, "2")]


def test_activations_are_marks_for_time_charts(as_engineer, policy, project):
    factories.make_recipes(project)
    post(as_engineer, "/labels/2/activate", {})
    post(as_engineer, "/rewards/default/2/activate", {"policy": "editor"})
    with tenant(project.id):
        since = AuditEvent.objects.order_by("at").first().at
        assert [one.text for one in moves(since, timezone.now())] == ["recipe 2", "reward default v2"]
