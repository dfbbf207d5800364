"""The list of flags and the review page: what they say, what they keep, what they refuse."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from evals.models import Benchmark, Problem
from feedback.models import Flag, ReviewDraft, ReviewReservation, ReviewResponse, Turn
from feedback.services.review import Answer, respond
from feedback.services.review_queue import hold_next
from jobs.models import Job
from registry.models import AuditEvent
from registry.services import change_project_settings
from registry.tenancy import tenant
from tests.console import factories
from tests.console.settings_rows import seen_on
from tests.console.test_pages import HOSTILE, VALUE

pytestmark = pytest.mark.django_db


def at(name: str, *args) -> str:
    return reverse(f"console:{name}", args=["editor", *args])


def text(response) -> str:
    return response.content.decode()


@pytest.fixture
def as_reviewer(client, reviewer):
    client.force_login(reviewer)
    return client


@pytest.fixture
def flags(project) -> list[Flag]:
    """Three flagged turns, the newest first in the queue."""
    with tenant(project.id):
        factories.make_policy()
        return [factories.make_flag(factories.make_turn(f"s{i}", completion=f"    return {i}")) for i in range(3)][::-1]


@pytest.fixture
def rows(project):
    """rows(Model) -> its rows in the project."""

    def of(model, **filters):
        with tenant(project.id):
            return list(model.objects.filter(**filters).order_by("pk"))

    return of


class TestFlagged:
    """With G.33: a rule that is no more, and nothing flagged; the page says what to do."""

    def test_only_what_waits_is_shown_until_something_else_is_asked_for(self, as_owner, project, flags):
        with tenant(project.id):
            respond(flags[0], Answer(resolution="fine"), reviewer="ann")
        html = text(as_owner.get(at("flagged")))
        assert html.count("<tr data-peek=") == 2 and "state:open" in html
        assert text(as_owner.get(at("flagged") + "?q=")).count("<tr data-peek=") == 3
        assert text(as_owner.get(at("flagged") + "?q=resolution:fine")).count("<tr data-peek=") == 1
        assert text(as_owner.get(at("flagged") + "?reviewer=ann")).count("<tr data-peek=") == 1

    def test_each_rule_says_how_often_there_was_something_to_find(self, as_owner, project, flags):
        with tenant(project.id):
            for flag, resolution in zip(flags, ("fine", "excluded", "excluded"), strict=True):
                respond(flag, Answer(resolution=resolution), reviewer="ann")
        html = text(as_owner.get(at("flagged")))
        # 2 of 3: Wilson 20.8 % to 93.9 %
        assert "66.7 %" in html and "20.8 % to 93.9 %" in html and "too few to say" in html

    def test_a_rule_without_a_settled_flag_has_no_precision_yet(self, as_owner, flags):
        assert "no data yet" in text(as_owner.get(at("flagged")))

    def test_g33_an_archived_rule_says_what_to_do(self, as_owner, project, flags):
        with tenant(project.id):
            flag = factories.make_flag(factories.make_turn("old"), rule="profanity")
        assert "No rule of this name raises flags any more. Settle what is open" in text(as_owner.get(at("flagged")))
        assert "your answer settles this one all the same" in text(as_owner.get(at("review-item", flag.pk)))

    def test_g33_zero_items_say_what_to_do(self, as_owner, project):
        assert "No turn was ever flagged" in text(as_owner.get(at("flagged")))
        assert "Draw a sample" in text(as_owner.get(at("review")))

    def test_many_are_settled_at_once_and_one_that_was_is_passed_over(self, as_reviewer, project, flags, rows):
        with tenant(project.id):
            respond(flags[0], Answer(resolution="fine"), reviewer="ann")
        picks = [str(flag.pk) for flag in flags]
        page = as_reviewer.post(
            at("flags-resolve"), {"pick": picks, "choice": "excluded", "query": "q=rule:sample"}, follow=True
        )
        assert "2 taken out of training. 1 were settled" in text(page) and "rule:sample" in text(page)
        assert [flag.resolution for flag in rows(Flag)] == ["excluded", "excluded", "fine"]

    @pytest.mark.parametrize("picks", [[], ["x"], [str(n) for n in range(1, 202)]])
    def test_too_few_and_too_many_ticks_are_refused(self, as_reviewer, flags, rows, picks):
        page = as_reviewer.post(at("flags-resolve"), {"pick": picks, "choice": "fine"}, follow=True)
        assert "are ticked; tick 1 to 200" in text(page) and not rows(ReviewResponse)

    def test_a_turn_is_flagged_by_hand_and_the_form_leads_back(self, as_reviewer, project, flags, rows):
        with tenant(project.id):
            turn = factories.make_turn("quiet")
        page = as_reviewer.post(at("turn-flag", turn.turn_id), {"reason": "look", "back": "/p/editor/review"})
        assert page.url == "/p/editor/review"
        flag = rows(Flag, rule="by_hand")[0]
        assert (flag.reason, flag.raised_by) == ("look", "reviewer")

    @pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:x"])
    def test_a_form_never_leads_to_another_site(self, as_reviewer, project, back):
        with tenant(project.id):
            turn = factories.make_turn("quiet")
        page = as_reviewer.post(at("turn-flag", turn.turn_id), {"back": back})
        assert page.url == at("flagged")

    def test_flags_are_exported_as_the_list_shows_them(self, as_owner, flags):
        response = as_owner.get(at("flagged") + "?q=state:open")
        assert "/export/flagged?" in text(response)


class TestQueue:
    """With G.33: a target that was deleted or whose text is gone; the page says what to do."""

    def test_g35_start_gives_the_first_item_and_reserves_it(self, as_reviewer, flags, rows):
        assert as_reviewer.post(at("review-next")).url == at("review-item", flags[0].pk)
        assert [one.reviewer for one in rows(ReviewReservation)] == ["reviewer"]
        assert as_reviewer.post(at("review-next")).url == at("review-item", flags[0].pk)  # goes on with it

    def test_what_another_holds_is_marked_and_not_given(self, as_reviewer, project, flags):
        with tenant(project.id):
            hold_next(reviewer="ann")
        html = text(as_reviewer.get(at("review")))
        assert "somebody is looking at it" in html
        assert as_reviewer.post(at("review-next")).url == at("review-item", flags[1].pk)
        assert "looks at this right now" in text(as_reviewer.get(at("review-item", flags[0].pk)))
        held = as_reviewer.post(at("review-hold", flags[0].pk), {"opening": "yes"}).json()
        assert held == {"is_mine": False, "others": ["ann"]}

    def test_an_answer_goes_on_to_the_next_and_is_kept_with_its_time(self, as_reviewer, flags, rows):
        form = {"choice": "-0.5", "gold": "reject", "note": " wrong sign ", "advance": "on"}
        assert as_reviewer.post(at("review-answer", flags[0].pk), form).url == at("review-item", flags[1].pk)
        kept = rows(ReviewResponse)[0]
        assert (kept.resolution, kept.reward, kept.gold, kept.note) == ("overridden", -0.5, "reject", "wrong sign")
        assert (kept.reviewer, kept.at.date()) == ("reviewer", timezone.now().date())

    def test_without_auto_advance_the_item_stays_and_can_be_undone(self, as_reviewer, flags, rows):
        page = as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "excluded"}, follow=True)
        assert "The turn is out of training." in text(page) and "Undo my answer" in text(page)
        page = as_reviewer.post(at("review-undo"), {"flag": flags[0].pk}, follow=True)
        assert "taken back" in text(page) and rows(Flag, pk=flags[0].pk)[0].state == "open"
        assert rows(Turn, is_excluded=True) == []

    def test_a_bare_undo_takes_the_last_answer_back_and_opens_it(self, as_reviewer, flags):
        for flag in flags[:2]:
            as_reviewer.post(at("review-answer", flag.pk), {"choice": "fine", "advance": "on"})
        assert as_reviewer.post(at("review-undo")).url == at("review-item", flags[1].pk)
        assert as_reviewer.post(at("review-undo")).url == at("review-item", flags[0].pk)
        assert "no answer to take back" in text(as_reviewer.post(at("review-undo"), follow=True))

    @pytest.mark.parametrize(
        ("form", "says"),
        [({}, "choose what shall become"), ({"choice": "other", "reward": "much"}, "give a number"),
         ({"choice": "other", "reward": "1.5"}, "from -1 to 1"), ({"choice": "nan"}, "from -1 to 1"),
         ({"choice": "fine", "gold": "silence"}, "choose accept or reject"),
         ({"choice": "fine", "note": "x" * 5000}, "at most 4,000")],
    )  # fmt: skip
    def test_an_answer_that_cannot_be_read_changes_nothing(self, as_reviewer, flags, rows, form, says):
        page = as_reviewer.post(at("review-answer", flags[0].pk), form | {"advance": "on"}, follow=True)
        assert says in text(page) and "toast-error" in text(page) and not rows(ReviewResponse)

    def test_a_typed_reward_may_have_a_real_minus(self, as_reviewer, flags, rows):
        as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "other", "reward": "\u22120.25"})
        assert rows(ReviewResponse)[0].reward == -0.25

    def test_a_late_answer_is_kept_and_said_to_be(self, as_reviewer, project, flags, rows):
        with tenant(project.id):
            respond(flags[0], Answer(resolution="excluded"), reviewer="ann")
        page = as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "fine"}, follow=True)
        assert "settled before" in text(page) and len(rows(ReviewResponse)) == 2

    def test_skipping_goes_on_and_looking_again_brings_it_back(self, as_reviewer, flags):
        assert as_reviewer.post(at("review-skip", flags[0].pk)).url == at("review-item", flags[1].pk)
        for flag in flags[1:]:
            as_reviewer.post(at("review-skip", flag.pk))
        page = text(as_reviewer.get(at("review")))
        assert "Look again at the 3 you skipped" in page
        assert "3 skipped turns are back" in text(as_reviewer.post(at("review-look-again"), follow=True))

    def test_a_draft_is_there_again_and_gone_with_the_answer(self, as_reviewer, flags, rows):
        as_reviewer.post(at("review-draft", flags[0].pk), {"choice": "excluded", "note": "half a tho"})
        html = text(as_reviewer.get(at("review-item", flags[0].pk)))
        assert "half a tho" in html and "Draft kept" in html
        as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "fine"})
        assert rows(ReviewDraft) == []

    def test_a_draft_that_is_too_long_is_refused_in_words(self, as_reviewer, flags):
        response = as_reviewer.post(at("review-draft", flags[0].pk), {"note": "x" * 9000})
        assert response.status_code == 400 and "8,000" in response.json()["error"]

    def test_the_queue_is_narrowed_by_the_address_and_stays_so(self, as_reviewer, project, flags):
        with tenant(project.id):
            other = factories.make_flag(factories.make_turn("long"), rule="length_change")
        html = text(as_reviewer.get(at("review") + "?rule=length_change"))
        assert at("review-item", other.pk) + "?rule=length_change" in html
        assert at("review-item", flags[0].pk) not in html
        response = as_reviewer.post(
            at("review-answer", other.pk), {"choice": "fine", "advance": "on", "rule": "length_change"}
        )
        assert response.url == at("review") + "?rule=length_change"
        assert "Nothing of this kind waits" in text(as_reviewer.get(response.url))
        assert "Nothing of this kind waits" in text(as_reviewer.get(at("review") + "?checkpoint=%00no@7"))

    def test_g33_a_deleted_target_says_what_to_do(self, as_reviewer, project, flags):
        with tenant(project.id):
            Turn.objects.all().delete()
        page = as_reviewer.get(at("review-item", flags[0].pk))
        assert page.status_code == 404 and "Its turn was deleted" in text(page) and "To the queue" in text(page)
        assert as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "fine"}).status_code == 404

    def test_a_redacted_target_says_what_to_do(self, as_reviewer, project, flags):
        with connection.cursor() as cursor, tenant(project.id):
            cursor.execute("DELETE FROM feedback_turnpayload WHERE project_id = %s", [project.id])
        html = text(as_reviewer.get(at("review-item", flags[0].pk)))
        assert "The text of this turn is not kept" in html and "“Fine as it is” closes it" in html

    def test_the_share_link_shows_the_same_item_alone(self, client, viewer, flags):
        client.force_login(viewer)
        html = text(client.get(at("review-focus", flags[0].pk)))
        assert "return 2" in html and "navbar" not in html and "Answering needs the role reviewer" in html

    def test_an_answer_from_the_share_link_stays_there(self, as_reviewer, flags):
        response = as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "fine", "focus": "yes"})
        assert response.url == at("review-focus", flags[0].pk)

    def test_a_viewer_sees_items_and_no_form(self, client, viewer, flags):
        client.force_login(viewer)
        html = text(client.get(at("review-item", flags[0].pk)))
        assert "return 2" in html and 'action="' + at("review-answer", flags[0].pk) not in html


class TestSeveralAnswers:
    @pytest.fixture(autouse=True)
    def two_needed(self, project):
        with tenant(project.id):
            change_project_settings(project, actor="test", review_responses=2)

    def test_others_answers_are_hidden_until_one_has_answered(self, as_reviewer, project, flags):
        with tenant(project.id):
            respond(flags[0], Answer(resolution="excluded", note="my secret view"), reviewer="ann")
        html = text(as_reviewer.get(at("review-item", flags[0].pk)))
        assert "my secret view" not in html and "1 answer is here already" in html and "1 of 2" in html
        page = as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "fine"}, follow=True)
        assert "my secret view" in text(page)

    def test_agreement_of_two_people_is_shown_with_its_interval(self, as_owner, project):
        # 3 of 4 alike; by chance .5 x .25 + .5 x .75 = .5; kappa (.75 - .5) / .5 = .5
        words = [("fine", "fine"), ("fine", "excluded"), ("excluded", "excluded"), ("excluded", "excluded")]
        with tenant(project.id):
            factories.make_policy()
            for i, (first, second) in enumerate(words):
                flag = factories.make_flag(factories.make_turn(f"s{i}"))
                respond(flag, Answer(resolution=first), reviewer="ann")
                respond(flag, Answer(resolution=second), reviewer="bob")
        html = text(as_owner.get(at("review-agreement")))
        assert "75.0 %" in html and "+0.5" in html and "too few to say" in html

    def test_gold_labels_are_compared_with_users_and_tests(self, as_owner, project):
        with tenant(project.id):
            factories.make_policy()
            for i, (gold, outcome, score) in enumerate(
                [("accept", "accept", 1.0), ("reject", "accept", 0.0), ("reject", "silence", None)]
            ):
                turn = factories.make_turn(f"s{i}", outcome=outcome)
                factories.make_score(turn, score)
                respond(factories.make_flag(turn), Answer(resolution="fine", gold=gold), reviewer="ann")
        html = text(as_owner.get(at("review-agreement")))
        assert "users&#x27; signals" in html and "50.0 %" in html and "100.0 %" in html

    def test_without_answers_the_page_says_how_to_get_them(self, as_owner, project):
        assert "No answer in the last 90d" in text(as_owner.get(at("review-agreement")))


class TestProblems:
    def test_a_turn_becomes_a_problem_of_the_draft_and_leaves_training(self, as_reviewer, flags, rows):
        page = as_reviewer.post(
            at("review-answer", flags[0].pk), {"choice": "fine", "problem": "on", "gold": "accept"}, follow=True
        )
        assert "Added to reviewed-turns@1" in text(page)
        problem, benchmark = rows(Problem)[0], rows(Benchmark)[0]
        assert problem.messages == [{"role": "user", "content": "Complete this function:\ndef add_two(a):"}]
        assert problem.reference == "    return 2" and benchmark.is_held_out and benchmark.digest == ""
        assert [turn.session_id for turn in rows(Turn, is_excluded=True)] == [rows(Turn)[2].session_id]

    def test_a_problem_goes_to_the_benchmark_named_and_a_near_one_joins_its_family(self, as_engineer, project, rows):
        asked = "Write a function that takes a list of numbers and gives back the longest run of equal ones in it"
        with tenant(project.id):
            factories.make_policy()
            turns = [factories.make_turn(f"near-{n}", asked=asked + end) for n, end in enumerate(("", " or None"))]
            made = [factories.make_flag(turn) for turn in turns]
        answer = {"choice": "fine", "problem": "on", "benchmark": "lists of users"}
        page = as_engineer.post(at("review-answer", made[0].pk), answer, follow=True)
        assert "Added to lists of users@1." in text(page)
        assert '<option value="lists of users">' in text(as_engineer.get(at("review-item", made[1].pk)))
        page = as_engineer.post(at("review-answer", made[1].pk), answer, follow=True)
        first, second = rows(Problem)
        assert f"of it stands in lists of users@1/{first.problem_id}: the two are one family." in text(page)
        assert first.slices["family"] == second.slices["family"] == first.problem_id
        assert rows(Job, kind="rl_online.overlap")
        page = as_engineer.post(at("review-close-problems"), {"name": "lists of users"}, follow=True)
        assert "lists of users@1 is closed" in text(page)
        assert "a name has 1 to 100 characters and no / or @" in text(
            as_engineer.post(at("review-answer", made[0].pk), answer | {"benchmark": "a/b"}, follow=True)
        )

    def test_the_same_question_is_one_problem(self, as_reviewer, flags, rows):
        as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "fine", "problem": "on"})
        page = as_reviewer.post(at("review-answer", flags[1].pk), {"choice": "fine", "problem": "on"}, follow=True)
        assert "The same question is already in reviewed-turns@1" in text(page) and len(rows(Problem)) == 1

    def test_undo_takes_the_problem_back_unless_another_answer_wants_it(self, as_reviewer, flags, rows):
        for flag in flags[:2]:
            as_reviewer.post(at("review-answer", flag.pk), {"choice": "fine", "problem": "on"})
        as_reviewer.post(at("review-undo"))
        assert len(rows(Problem)) == 1 and len(rows(Turn, is_excluded=True)) == 1
        as_reviewer.post(at("review-undo"))
        assert rows(Problem) == [] and rows(Turn, is_excluded=True) == []
        assert [event.verb for event in rows(AuditEvent, object_kind="problem")] == ["add", "remove"]

    def test_a_closed_draft_is_frozen_and_the_next_problem_opens_another(self, as_engineer, project, flags, rows):
        as_engineer.post(at("review-answer", flags[0].pk), {"choice": "fine", "problem": "on"})
        page = as_engineer.post(at("review-close-problems"), follow=True)
        assert "reviewed-turns@1 is closed" in text(page) and len(rows(Benchmark)[0].digest) == 64
        as_engineer.post(at("review-undo"))
        assert len(rows(Problem)) == 1  # nothing leaves a closed version
        with tenant(project.id):
            flag = factories.make_flag(factories.make_turn("new", asked="Another question"))
        page = as_engineer.post(at("review-answer", flag.pk), {"choice": "fine", "problem": "on"}, follow=True)
        assert "Added to reviewed-turns@2" in text(page)

    def test_a_turn_without_its_text_becomes_no_problem(self, as_reviewer, project, flags, rows):
        with connection.cursor() as cursor, tenant(project.id):
            cursor.execute("DELETE FROM feedback_turnpayload WHERE project_id = %s", [project.id])
        page = as_reviewer.post(at("review-answer", flags[0].pk), {"choice": "fine", "problem": "on"}, follow=True)
        assert "not kept, so nothing can be asked again" in text(page) and not rows(ReviewResponse)


def test_an_override_of_what_was_learnt_says_that_the_next_batch_teaches_it(as_reviewer, loop):
    flag = loop.flags[0]  # its turn is in the batch of the promoted update
    html = text(as_reviewer.get(at("review-item", flag.pk)))
    assert "teaches the difference in the next batch" in html
    page = as_reviewer.post(at("review-answer", flag.pk), {"choice": "-1"}, follow=True)
    assert "It was learnt from already" in text(page)


def test_engineers_write_the_instructions_that_reviewers_see(client, engineer, reviewer, flags):
    client.force_login(engineer)
    seen = seen_on(text(client.get(at("review"))), at("review-settings"))
    sent = {"review_instructions": "Exclude <b>secrets</b>.", "review_responses": "2", "seen": seen}
    client.post(at("review-settings"), sent)
    client.force_login(reviewer)
    html = text(client.get(at("review-item", flags[0].pk)))
    assert "Exclude &lt;b&gt;secrets&lt;/b&gt;." in html and "0 of 2" in html


@pytest.mark.parametrize("number", ["0", "10", "1.5", "x", ""])
def test_how_many_must_answer_is_a_small_whole_number(as_engineer, flags, number):
    seen = seen_on(text(as_engineer.get(at("review"))), at("review-settings"))
    sent = {"review_responses": number, "review_instructions": "Kept.", "seen": seen}
    page = as_engineer.post(at("review-settings"), sent)
    assert page.status_code == 400 and "review_responses:" in text(page) and ">Kept.</textarea>" in text(page)


def test_a_sample_fills_the_queue(as_reviewer, project, rows):
    with tenant(project.id):
        factories.make_policy()
        for i in range(3):
            factories.make_turn(f"s{i}")
    page = as_reviewer.post(at("review-sample"), {"number": "2", "days": "7"}, follow=True)
    assert "2 unflagged turns are in the queue" in text(page)
    assert [flag.rule for flag in rows(Flag)] == ["sample", "sample"]
    page = as_reviewer.post(at("review-sample"), {"number": "2", "days": "900"}, follow=True)
    assert "choose one of 1, 7, 30" in text(page)


def test_hostile_text_is_shown_as_text_on_every_review_page(as_reviewer, project):
    with tenant(project.id):
        factories.make_policy()
        turn = factories.make_turn(
            "a/b ?#<x>", completion=HOSTILE, asked=HOSTILE, user=HOSTILE[:100], edited_to=HOSTILE + "!"
        )
        flag = factories.make_flag(turn, rule="<b>x</b>")
        respond(flag, Answer(resolution="fine", note=HOSTILE), reviewer="<i>ann</i>")
        again = factories.make_flag(turn, rule="by_hand", raised_by="<i>ann</i>")
    addresses = [
        at("flagged") + "?q=",
        at("review"),
        at("review-item", flag.pk),
        at("review-item", again.pk),
        at("review-focus", again.pk),
        at("review-agreement"),
        at("review-item", flag.pk) + "?peek=1",
    ]
    for address in addresses:
        html = text(as_reviewer.get(address))
        assert "<script>alert" not in html and "<img src=x" not in html and "<i>ann" not in html and "<b>x" not in html
        assert "\u202e" not in VALUE.sub("", html)


def test_a_megabyte_on_one_line_is_folded_and_cut(as_reviewer, project):
    with tenant(project.id):
        factories.make_policy()
        flag = factories.make_flag(factories.make_turn("long", completion="x" * 1_048_576))
    assert len(text(as_reviewer.get(at("review-item", flag.pk)))) < 200_000


@pytest.mark.parametrize("name", ["flagged", "review", "review-agreement", "item"])
def test_a_page_asks_the_same_number_of_questions_at_1_and_100_rows(as_reviewer, project, name):
    counts = []
    with tenant(project.id):
        factories.make_policy()
    for start, number in ((0, 2), (2, 100)):
        with tenant(project.id):
            for i in range(start, start + number):
                flag = factories.make_flag(factories.make_turn("s" if name == "item" else f"s{i}", index=i))
                if i % 2:
                    respond(flag, Answer(resolution="fine"), reviewer="reviewer")
                else:
                    last = flag
        address = at("review-item", last.pk) if name == "item" else at(name)
        as_reviewer.get(address)
        with CaptureQueriesContext(connection) as queries:
            as_reviewer.get(address)
        counts.append(len(queries))
    assert counts[0] == counts[1]
