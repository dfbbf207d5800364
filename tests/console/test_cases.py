"""Public reports as small inputs, CASES C.14 to C.17: what other platforms got wrong, from the door to the page."""

import re
import threading

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from evals.models import Problem, Score
from feedback import hourly
from feedback.models import ReviewResponse, Turn, UserSignal
from feedback.services.rollups import count_all_dirty
from registry.models import Deployment
from registry.services import change_project_settings
from registry.tenancy import tenant
from rl_online import collecting
from rl_online.rewards.composite import parse_reward_spec
from tests.console import evaluate, factories
from tests.console.sending import send, signal, turn, work_off


@pytest.fixture
def key(api_key):
    return api_key("ingest")


def at_once(*acts) -> None:
    """Each act in a thread of its own, all let go together."""
    start, faults = threading.Barrier(len(acts)), []

    def run(act) -> None:
        try:
            start.wait(20)
            act()
        except Exception as error:
            faults.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []


@pytest.mark.parametrize(("values", "mean"), [([0.0, 1.0], "50.0 %"), ([-0.0, 0.0], "0.0 %"), ([0, 1], "50.0 %")])
def test_c14_the_average_of_zero_and_one_is_a_half_and_zeros_are_zero(as_owner, project, values, mean):
    with tenant(project.id):
        factories.make_policy()
        gate = evaluate.make_benchmark(size=2)
        for name in ("editor@1", "gpt-5"):
            run = evaluate.make_run(gate, name)
            for problem, value in zip(Problem.objects.filter(benchmark=gate).order_by("id"), values, strict=True):
                Score.objects.filter(run=run, problem=problem).update(value=value, status="scored")
    html = as_owner.get(reverse("console:compare", args=["editor"]) + "?a=editor@1&b=gpt-5").content.decode()
    row = re.search(r"<tbody><tr><td>all</td><td class=\"num\">([^<]+)</td><td class=\"num\">([^<]+)</td>", html)
    assert row.groups() == (mean, mean)


def test_c15_what_was_taken_back_counts_neither_in_the_share_nor_in_the_batch(as_owner, project, key):
    with tenant(project.id):
        policy = factories.make_policy()
    send(as_owner, key, turn("t1", finish_reason="stop"), signal("g0", "shown"), signal("g1", "accept"))
    work_off(project)
    send(as_owner, key, signal("g2", "reject", supersedes="g1", seconds=9))
    work_off(project)
    with tenant(project.id):
        count_all_dirty(project.id)
        at = Turn.objects.get().at
        [share] = hourly.shares(hourly.Span.in_hours(at, at), is_divided=False)
        assert (share.turns, share.moments.accepted, share.value) == (1, 0, 0.0)
        line = collecting.line_of(policy, Deployment.objects.get().checkpoint)
        spec = parse_reward_spec(factories.make_spec().body)
        [candidate] = collecting.collect(line, spec, kind=collecting.KTO, max_lag=4, max_turns=10).candidates
        assert candidate.reward < 0
    page = as_owner.get(reverse("console:overview", args=["editor"])).content.decode()
    assert "0.0 %" in page and "n 1 turns" in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("num_needed", [1, 2])
def test_c16_two_reviewers_who_answer_one_item_at_once_are_both_kept(project, member, num_needed):
    people = [member(project, "reviewer", username=name) for name in ("ann", "bob")]
    with tenant(project.id):
        factories.make_policy()
        flag = factories.make_flag(factories.make_turn("s"))
        change_project_settings(project, actor="owner", review_responses=num_needed)
    address = reverse("console:review-answer", args=["editor", flag.pk])
    clients = [Client() for _ in people]
    for client, person in zip(clients, people, strict=True):
        client.force_login(person)
    answers = ({"choice": "fine", "gold": "accept"}, {"choice": "excluded", "gold": "reject"})
    at_once(
        *(
            lambda client=client, form=form: client.post(address, form)
            for client, form in zip(clients, answers, strict=True)
        )
    )
    with tenant(project.id):
        kept = {one.reviewer: (one.resolution, one.gold) for one in ReviewResponse.objects.all()}
        flag.refresh_from_db()
    assert kept == {"ann": ("fine", "accept"), "bob": ("excluded", "reject")} and flag.state == "resolved"
    page = clients[0].get(reverse("console:review-item", args=["editor", flag.pk])).content.decode()
    assert "<b>ann</b>" in page and "<b>bob</b>" in page


@pytest.mark.django_db(transaction=True)
def test_c16_two_users_who_rate_one_turn_at_once_are_both_kept(project, api_key):
    key = api_key("ingest")
    send(Client(), key, turn("t1"))
    at_once(
        *(
            lambda n=n, kind=kind: send(Client(), key, signal(f"g{n}", kind, user=f"u{n}"))
            for n, kind in enumerate(("accept", "reject"))
        )
    )
    with tenant(project.id):
        assert set(UserSignal.objects.values_list("user", "kind")) == {("u0", "accept"), ("u1", "reject")}


def test_c17_three_users_with_ten_turns_each_are_three_on_the_card(as_owner, project, key):
    send(as_owner, key, *(turn(f"t{u}-{i}", f"s{u}", index=i, user=f"u{u}") for u in range(3) for i in range(10)))
    send(as_owner, key, turn("nobody", user=None))
    with tenant(project.id):
        count_all_dirty(project.id)
    page = as_owner.get(reverse("console:ingestion", args=["editor"])).content.decode()
    card = re.search(r"<dt>Users.*?</dt><dd>(\d+)</dd><dd class=\"key-note\">([^<]+)", page, re.DOTALL)
    assert card.groups() == ("3", "with 31 turns")
