"""Judges' pages: what sways a judge, who it agrees with, what it costs and has to do, and the forms that change it."""

import re

import pytest
from django.urls import reverse
from django.utils import timezone

from evals.models import AnchorRun, AnchorSet, CanaryRun, GoldLabel, JudgeDuty, JudgeVersion
from evals.services.judges import change_duty, create_panel
from jobs.models import Job
from registry.models import AuditEvent
from registry.tenancy import tenant
from rl_online.models import GateReport
from tests.console import evaluate

URL = "http://127.0.0.1:9/v1"
HOSTILE = "<script>alert(1)</script>{{ 7|add:7 }}"


def words(response) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def address(name, **kwargs):
    return reverse(f"console:{name}", kwargs={"project": "editor"} | kwargs)


@pytest.fixture
def marks(project):
    """A judge of single answers: 30 turns marked, 24 of them labelled by a person who mostly agrees."""
    with tenant(project.id):
        judge = evaluate.make_judge("marks", "judge-small", protocol="pointwise", endpoint=URL)
        for number in range(30):
            is_good = number % 2 == 0
            evaluate.make_rating(judge, f"turn-{number}", 0.75 if is_good else 0.25, num_chars=100 + number)
            if number < 24:
                said = is_good if number % 8 else not is_good
                GoldLabel.objects.create(subject="turn", subject_ref=f"turn-{number}", value=float(said), by="ada")
        return judge


def test_the_health_of_a_judge_of_single_answers(as_owner, marks):
    html = words(as_owner.get(address("judge", judge=marks.pk)))
    assert "n 24 labelled" in html and "grees with people on 21 of 24 pairs, kappa 0.75" in html
    assert "Length slope" in html and "Mean mark, own family" in html
    assert "Raw rate 0.5 by the judge alone, n 30" in html and "Corrected rate" in html
    assert "Calibration error" in html and "in 5 bins, n 24" in html
    assert "First slot wins" not in html, "it has no slots"


def test_a_judgement_and_a_thousand_have_a_price(as_owner, marks):
    html = words(as_owner.get(address("judges")))
    assert "$0.002" in html and "$2" in html


def test_a_judge_that_says_nothing_about_people_says_so(as_owner, project):
    with tenant(project.id):
        judge = evaluate.make_judge("new", "m", protocol="pointwise", endpoint=URL)
    html = words(as_owner.get(address("judge", judge=judge.pk)))
    assert "no label yet" in html and "no rating in the" in html and "not shown any yet" in html


def test_a_pairwise_judge_shows_its_slots_and_lengths(as_owner, loop, project):
    with tenant(project.id):
        made = evaluate.make_evaluated(loop)
    html = words(as_owner.get(address("judge", judge=made["base"].pk)))
    assert "First slot wins" in html and "Longer answer wins" in html and "Own family wins" in html


def test_f29_six_of_seven_judges_have_their_say_and_one_is_blocked_with_a_button(as_engineer, project):
    with tenant(project.id):
        judges = [evaluate.make_judge(f"judge-{n}", f"m-{n}", protocol="pointwise", endpoint=URL) for n in range(7)]
        for judge in judges:
            evaluate.make_rating(judge, "turn-1", None if judge is judges[-1] else 0.75)
    listed = words(as_engineer.get(address("judges")))
    assert "1 judgement could not be had" in listed and listed.count("1 blocked") == 1
    html = words(as_engineer.get(address("judge", judge=judges[-1].pk)))
    assert "turn-1 editor@1 status 401" in html and "Ask again" in html
    response = as_engineer.post(address("judge-retry", judge=judges[-1].pk), follow=True)
    assert "is asked for again" in words(response)
    assert Job.objects.filter(kind="evals.rate_live", state="queued").count() == 1


def test_a_judge_is_made_by_a_form_and_refused_with_its_field(as_engineer, project, settings):
    settings.OUTBOUND_ALLOW = ["127.0.0.1"]
    form = {
        "name": "polite", "protocol": "pointwise", "model": "m", "endpoint": URL, "scale_low": "1", "scale_high": "5",
        "max_tokens": "200", "rubric": "Is it polite?", "structured": "yes",
    }  # fmt: skip
    refused = as_engineer.post(address("judge-new"), form | {"endpoint": "http://10.0.0.1/v1"})
    assert refused.status_code == 400 and "endpoint: this address is not public" in words(refused)
    assert 'value="polite"' in refused.content.decode(), "what was written stays"
    made = as_engineer.post(address("judge-new"), form, follow=True)
    assert "Judge polite (m) is made" in words(made) and "Is it polite?" in words(made)
    with tenant(project.id):
        assert JudgeVersion.objects.get().sampling == {"temperature": 0, "max_tokens": 200, "structured": True}
    assert as_engineer.post(address("judge-new"), form).status_code == 409


def test_work_and_budget_are_changed_and_audited(as_engineer, marks, project):
    form = {"live": "turn", "share": "12.5", "idle_s": "60", "daily_usd": "1.50", "daily_calls": "100"}
    html = words(as_engineer.post(address("judge-duty", judge=marks.pk), form, follow=True))
    assert "12.5 % of turns" in html and "$1.5" in html and "100 calls" in html
    with tenant(project.id):
        assert JudgeDuty.objects.get().share == 0.125
        assert AuditEvent.objects.get(verb="change duty").actor == "engineer"
    wrong = as_engineer.post(address("judge-duty", judge=marks.pk), form | {"share": "200"}, follow=True)
    assert "share: is 2; write more than 0 and at most 1" in words(wrong)
    odd = as_engineer.post(address("judge-duty", judge=marks.pk), form | {"share": "nan"}, follow=True)
    assert "share: is nan" in words(odd)


def test_a_policy_does_not_judge_itself_and_the_page_says_so(as_owner, project):
    with tenant(project.id):
        judge = evaluate.make_judge()
        html = words(as_owner.get(address("judge", judge=judge.pk)))
        assert "not judged: a policy may not judge itself" in html
        change_duty(judge, actor="ada", may_judge_itself=True)
    assert "judged and shown, without a vote" in words(as_owner.get(address("judge", judge=judge.pk)))


def test_a_reviewer_labels_and_a_viewer_cannot(client, reviewer, viewer, marks, project):
    with tenant(project.id):
        rating = marks.ratings.first()
    client.force_login(reviewer)
    assert "Your label of turn" in words(
        client.post(address("judge-label", rating=rating.pk), {"value": "0.5"}, follow=True)
    )
    with tenant(project.id):
        assert GoldLabel.objects.get(by="reviewer").value == 0.5
    client.force_login(viewer)
    assert "Good" not in words(client.get(address("judge-rating", rating=rating.pk)))
    assert client.post(address("judge-label", rating=rating.pk), {"value": "1"}).status_code == 403


@pytest.mark.parametrize("value", ["2", "-1", "nan", "inf", "", "x"])
def test_a_label_that_is_none_is_refused(as_engineer, marks, project, value):
    with tenant(project.id):
        rating = marks.ratings.first()
        before = GoldLabel.objects.count()
    response = as_engineer.post(address("judge-label", rating=rating.pk), {"value": value}, follow=True)
    assert "value:" in words(response)
    with tenant(project.id):
        assert GoldLabel.objects.count() == before


def test_anchors_are_added_line_by_line_and_shown_to_a_judge(as_engineer, marks, project):
    text = '{"key": "1", "task": "x", "answer": "y"}\n\n{"key": "2", "task": "x", "answer": "z", "gold": 0}\n'
    page = as_engineer.post(address("judge-anchors-add"), {"name": "first", "items": text}, follow=True)
    assert "first@1 holds 2 items" in words(page)
    wrong = as_engineer.post(address("judge-anchors-add"), {"name": "b", "items": text + "{"}, follow=True)
    assert "items: line 4 is not JSON" in words(wrong)
    with tenant(project.id):
        anchors = AnchorSet.objects.get()
    shown = as_engineer.post(address("judge-run-anchors", judge=marks.pk), {"anchors": str(anchors.pk)}, follow=True)
    assert "is shown first@1" in words(shown)
    assert Job.objects.filter(kind="evals.anchors", state="queued").count() == 1


def test_drift_and_other_judges_stand_on_the_page(as_owner, marks, project):
    with tenant(project.id):
        items = [{"key": f"k{n}", "task": "x", "answer": "y"} for n in range(24)]
        anchors = AnchorSet.objects.create(name="first", items=items, digest="d", created_by="ada")
        other = evaluate.make_judge("other", "m-2", protocol="pointwise", endpoint=URL)
        for judge, value in ((marks, 0.25), (marks, 0.75), (other, 0.5)):
            results = {f"k{n}": {"state": "scored", "value": value if n % 3 else 0.25} for n in range(24)}
            AnchorRun.objects.create(
                judge=judge,
                anchors=anchors,
                state="done",
                results=results,
                requested_by="ada",
                finished_at=timezone.now(),
            )
    html = words(as_owner.get(address("judge", judge=marks.pk)))
    assert "unstable" in html and "no longer says the same about its anchors" in html
    assert "other (m-2)" in html and "−0.167" in html


def test_canaries_of_a_judge_of_single_answers_show_what_it_gave(as_owner, marks, project):
    with tenant(project.id):
        CanaryRun.objects.create(
            judge=marks, state="done", standing="failed", requested_by="ada", sentence="1 of 12 canaries got more",
            results=[
                {
                    "name": "colon", "verdict": "scored", "value": 1.0,
                    "calls": [{"order": "", "verdict": "scored", "mark": 5.0, "raw": '{"score": 5}', "error": ""}],
                }
            ],
        )  # fmt: skip
    html = words(as_owner.get(address("judge", judge=marks.pk)))
    assert "1 of 12 canaries got more" in html and "colon 1" in html and "scored 5" in html


def test_a_panel_is_named_on_its_judges_pages(as_owner, marks, project):
    with tenant(project.id):
        other = evaluate.make_judge("other", "m-2", protocol="pointwise", endpoint=URL)
        create_panel("pair", [marks.pk, other.pk], actor="ada")
    assert "Panels pair" in words(as_owner.get(address("judge", judge=marks.pk)))
    assert "panel:pair marks , other" in words(as_owner.get(address("judges")))


def test_a_panel_is_made_from_the_list(as_engineer, marks, project):
    with tenant(project.id):
        other = evaluate.make_judge("other", "m-2", protocol="pointwise", endpoint=URL)
    form = {"name": "pair", "quorum": "2", "max_spread": "0.5", "judges": [marks.pk, other.pk]}
    assert "Panel pair speaks once" in words(as_engineer.post(address("judge-panel-add"), form, follow=True))
    one = as_engineer.post(address("judge-panel-add"), form | {"judges": [marks.pk]}, follow=True)
    assert "judges: name two judges of single answers or more" in words(one)


def test_judges_of_one_pair_are_a_panel_on_its_page_and_the_paused_abstain(as_owner, project):
    with tenant(project.id):
        problem = evaluate.make_benchmark(size=1).problems.get()
        judges = [evaluate.make_judge(f"j{n}", f"m-{n}") for n in range(4)]
        said = [
            evaluate.make_judgement(judge, problem, verdict)
            for judge, verdict in zip(judges, ("left", "left", "right", "invalid"), strict=True)
        ]
        evaluate.make_canaries(judges[2], "failed")
    html = words(as_owner.get(address("comparison", comparison=said[0].pk)))
    assert "As a panel: editor@2, 2 of 2 votes; 2 abstained" in html


def test_what_a_judge_or_a_sender_wrote_is_text(as_engineer, project):
    with tenant(project.id):
        judge = evaluate.make_judge(HOSTILE, HOSTILE, protocol="pointwise", endpoint=URL, rubric=HOSTILE)
        rating = evaluate.make_rating(judge, HOSTILE, reason="", rated=HOSTILE)
    for response in (
        as_engineer.get(address("judges")),
        as_engineer.get(address("judge", judge=judge.pk)),
        as_engineer.get(address("judge-rating", rating=rating.pk)),
        as_engineer.post(address("judge-new"), {"name": HOSTILE, "protocol": HOSTILE, "scale_low": HOSTILE}),
    ):
        html = response.content.decode()
        assert "<script>alert(1)" not in html and "14" not in re.findall(r"</script>(\d+)", html)


def test_ratings_are_filtered_by_their_state(as_owner, marks, project):
    with tenant(project.id):
        evaluate.make_rating(marks, "turn-late", None)
    html = words(as_owner.get(address("judge", judge=marks.pk) + "?state=error"))
    assert "turn-late" in html and "turn-3 " not in html.partition("Ratings")[2]


def test_a_gate_whose_judge_was_refused_says_so(as_owner, loop, project):
    with tenant(project.id):
        report = GateReport.objects.order_by("pk").last()
        report.judge = {
            "name": "base",
            "model": "editor@1",
            "win_rate": None,
            "refused": "a policy may not judge itself",
        }
        report.save()
    assert "not judged by editor@1: a policy may not judge itself" in words(
        as_owner.get(address("gate", report=report.pk))
    )
    assert as_owner.get(address("gates")).status_code == 200


def test_the_gold_set_shows_each_label_beside_the_judges_and_how_far_people_agree(as_owner, marks, project):
    with tenant(project.id):
        GoldLabel.objects.all().delete()
        ref = marks.ratings.first().subject_ref
        for by, value in (("ada", 1.0), ("bob", 1.0), ("eve", 0.0)):
            GoldLabel.objects.create(subject="turn", subject_ref=ref, value=value, by=by)
        GoldLabel.objects.create(subject="turn", subject_ref="not-marked", value=0.5, by="ada")
        mark = marks.ratings.first().value
    html = words(as_owner.get(address("gold")))
    assert f"turn {ref} 1 ada {marks.name} {mark:g} {int(mark >= 0.5)} of 1" in html
    assert "turn not-marked 0.5 ada no mark no mark" in html
    assert "33.3 % agree" in html and "n 3 pairs of labels on 1 items" in html, "two of three pairs differ"
    assert len(as_owner.get(address("gold"), {"q": "by:ada label:1"}).context["rows"]) == 1


def test_an_empty_gold_set_says_how_labels_come_in(as_owner, project):
    assert "No label yet" in words(as_owner.get(address("gold")))
