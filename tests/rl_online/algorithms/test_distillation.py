"""Learning a teacher's distribution: all of it, its top, its opinion of what was said, or one's own with a hint."""

import math

import pytest
import torch
from torch import ones, tensor

from rl_online.algorithms.gkd import divergences, generalised_jsd, kl_top_and_tail, top_kl_teacher_to_student
from rl_online.algorithms.hint_distillation import hint_advantage, hint_distillation
from rl_online.algorithms.on_policy_distillation import distillation_advantage
from rl_online.algorithms.policy_gradient import reinforce

TEACHER = tensor([[0.5, 0.25, 0.25]], dtype=torch.float64)
STUDENT = tensor([[0.25, 0.25, 0.5]], dtype=torch.float64)


def kl(p, q):
    return (p * (p.log() - q.log())).sum().item()


@pytest.mark.parametrize(
    ("beta", "value"),
    [
        (0.0, kl(TEACHER, STUDENT)),
        (1.0, kl(STUDENT, TEACHER)),
        (0.3, 0.3 * kl(TEACHER, 0.3 * TEACHER + 0.7 * STUDENT) + 0.7 * kl(STUDENT, 0.3 * TEACHER + 0.7 * STUDENT)),
    ],
)
def test_the_divergence_runs_from_teacher_to_student_at_0_and_back_at_1(beta, value):
    loss = generalised_jsd(STUDENT.log(), TEACHER.log(), ones(1), beta=beta, denominator=1)
    assert loss.item() == pytest.approx(value)


def test_a_teacher_learns_nothing_and_may_exclude_tokens():
    student, teacher = torch.zeros(1, 3, requires_grad=True), tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    loss = generalised_jsd(student, teacher, ones(1), beta=0.0, denominator=1)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(1.5))
    assert teacher.grad is None and student.grad.isfinite().all()


def test_a_teachers_top_tokens_are_all_of_it_when_it_names_them_all():
    ids = tensor([[2, 0, 1]])
    loss = top_kl_teacher_to_student(STUDENT.log(), ids, TEACHER.log().gather(1, ids), ones(1), denominator=1)
    assert loss.item() == pytest.approx(kl(TEACHER, STUDENT))


def test_of_a_teachers_top_one_only_its_term_is_left():
    loss = top_kl_teacher_to_student(
        STUDENT.log(), tensor([[0]]), tensor([[0.5]], dtype=torch.float64).log(), ones(1), denominator=1
    )
    assert loss.item() == pytest.approx(0.5 * math.log(2))


def test_divergences_over_two_tokens():
    """Teacher (3/4, 1/4), student (1/2, 1/2); halfway M = (5/8, 3/8)."""
    teacher, student = tensor([[0.75, 0.25]]).log(), tensor([[0.5, 0.5]]).log()
    there = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)  # .1308
    back = 0.5 * math.log(2 / 3) + 0.5 * math.log(2)  # .1438
    middle = 0.5 * (0.75 * math.log(1.2) + 0.25 * math.log(2 / 3) + 0.5 * math.log(0.8) + 0.5 * math.log(4 / 3))
    found = [divergences(student, teacher, beta=beta).item() for beta in (0.0, 1.0, 0.5)]
    assert found == pytest.approx([there, back, middle], abs=1e-6)


def test_what_a_teacher_did_not_name_counts_as_one_token():
    # named: the first at 1/2; the rest 1/2 together, under the student 1/4 and 3/4
    found = kl_top_and_tail(STUDENT.log(), tensor([[0]]), tensor([[0.5]], dtype=torch.float64).log())
    assert found.item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert found.item() < kl(TEACHER, STUDENT)


def test_of_tokens_with_fewer_names_the_rest_is_filled_up():
    student = torch.log_softmax(tensor([[0.3, 0.1, -0.2], [0.3, 0.1, -0.2]]), -1).requires_grad_()
    ids, logp = tensor([[2, 0], [2, 0]]), tensor([[0.5, 0.25], [0.5, 0.0]]).log()
    both = kl_top_and_tail(student, ids, logp)
    alone = kl_top_and_tail(student[1:], ids[1:, :1], logp[1:, :1])
    assert both[1].item() == pytest.approx(alone.item())
    both.sum().backward()
    assert student.grad.isfinite().all()


def test_a_sampled_tokens_advantage_is_what_the_teacher_thinks_of_it():
    advantage = distillation_advantage(tensor([-1.0, -2.0]), tensor([-1.5, -0.5]))
    assert advantage.tolist() == [-0.5, 1.5]


def test_sampled_distillation_has_the_kls_exact_gradient_in_expectation():
    logits = STUDENT.log().squeeze(0).clone().requires_grad_()
    probabilities, teacher = STUDENT.squeeze(0), TEACHER.log().squeeze(0)
    logp = logits.log_softmax(-1)
    advantage = distillation_advantage(probabilities.log(), teacher)
    reinforce(logp, probabilities.log(), advantage, probabilities, ones(3).bool(), denominator=1).backward()
    exact = STUDENT.log().squeeze(0).clone().requires_grad_()
    logq = exact.log_softmax(-1)
    (logq.exp() * (logq - teacher)).sum().backward()
    assert torch.allclose(logits.grad, exact.grad, atol=1e-12)


def test_a_hint_teaches_the_flagged_turn_alone():
    student = STUDENT.log().repeat(2, 1).requires_grad_()
    hinted = TEACHER.log().repeat(2, 1)
    loss = hint_distillation(student, hinted, tensor([True, False]), ones(2), denominator=1)
    loss.backward()
    assert loss.item() == pytest.approx(kl(TEACHER, STUDENT))
    # student minus teacher where flagged, nothing elsewhere
    assert student.grad.tolist() == [pytest.approx([-0.25, 0.0, 0.25]), [0.0, 0.0, 0.0]]


def test_without_a_flagged_token_a_hint_teaches_nothing():
    logits = torch.zeros(1, 3)
    assert hint_distillation(logits, logits, tensor([False]), ones(1), denominator=0).item() == 0.0


def test_the_sampled_form_adds_the_hints_opinion_to_the_reward():
    advantage = hint_advantage(tensor([1.0, 0.0]), tensor([-0.5, -2.0]), tensor([-1.0, -1.0]), hint_weight=2.0)
    assert advantage.tolist() == [2.0, -2.0]
