from datetime import UTC, datetime

import pytest

from feedback.models import Turn, TurnPayload
from registry.tenancy import tenant
from rl_online.services.recording import Choice, Exchange, record_choices, spans
from rl_online.serving.protocol import Chunk, Final, FinishReason, Sampling, Timings, Usage


def test_spans_are_runs_of_equal_versions():
    assert spans([3, 3, 4, 4, 4, 3]) == [(0, 2, 3), (2, 5, 4), (5, 6, 3)]
    assert spans([]) == []


@pytest.fixture
def exchange() -> Exchange:
    return Exchange(
        session="s-1",
        index=2,
        at=datetime.now(UTC),
        checkpoint="editor@3",
        messages=[{"role": "user", "content": "hi"}],
        prompt=None,
        input_ids=[1, 2, 3],
        sampling=Sampling(temperature=0.5, max_tokens=9, stop=("\n",), seed=7),
        logprobs_mode="processed",
        source="production",
        user="u-1",
        metadata={"surface": "chat", "slice": "greetings"},
    )


def choice(index: int = 0, *, final: bool = True) -> Choice:
    made = Choice(index=index, turn_id=f"turn-{index}")
    made.add(Chunk(index=index, ids=[4], logprobs=[-0.5], version=3, text="안"))
    made.add(Chunk(index=index, ids=[5, 0], logprobs=[-0.25, -0.125], version=3, text="녕"))
    if final:
        made.add(
            Final(
                index=index,
                finish_reason=FinishReason.STOP,
                usage=Usage(prompt=3, completion=3, cached=2),
                version_spans=[(0, 3, 3)],
                timings=Timings(queued_ms=1, ttft_ms=12.5, total_ms=40),
            )
        )
    return made


def recorded(project) -> tuple[list[Turn], dict[str, TurnPayload]]:
    with tenant(project.id):
        turns = list(Turn.objects.select_related("session").order_by("turn_id"))
        payloads = TurnPayload.objects.filter(project_id=project.id)
        return turns, {row.turn_id: row for row in payloads}


@pytest.mark.django_db
def test_a_choice_is_stored_with_all_that_learning_needs(project, exchange):
    record_choices(project.id, exchange, [choice()], elapsed_ms=50, failure=None)
    (turn,), payloads = recorded(project)
    payload = payloads[turn.turn_id]
    assert (turn.checkpoint, turn.session.session_id, turn.index) == ("editor@3", "s-1", 2)
    assert (turn.surface, turn.user, turn.source, turn.finish_reason) == ("chat", "u-1", "production", "stop")
    assert (turn.input_tokens, turn.cache_read_tokens, turn.output_tokens) == (1, 2, 3)
    assert (turn.ttft_ms, turn.latency_ms, turn.has_logprobs) == (12.5, 40, True)
    assert turn.sampling == {
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": 0,
        "seed": 7,
        "max_tokens": 9,
        "stop": ["\n"],
        "logprobs_mode": "processed",
    }
    assert (payload.completion, payload.completion_token_ids, payload.logprobs) == (
        "안녕",
        [4, 5, 0],
        [-0.5, -0.25, -0.125],
    )
    assert payload.prompt_token_ids == [1, 2, 3]
    assert payload.weight_versions == [[0, 3, 3]]
    assert payload.metadata["slice"] == "greetings"


@pytest.mark.django_db
def test_answers_to_one_prompt_are_tied_by_their_group(project, exchange):
    record_choices(project.id, exchange, [choice(0), choice(1)], elapsed_ms=50, failure=None)
    turns, _ = recorded(project)
    assert [turn.group for turn in turns] == ["turn-0", "turn-0"]


@pytest.mark.django_db
def test_an_answer_whose_caller_left_is_stored_as_aborted(project, exchange):
    record_choices(project.id, exchange, [choice(final=False)], elapsed_ms=50, failure=None)
    (turn,), payloads = recorded(project)
    assert (turn.finish_reason, turn.error, turn.latency_ms) == ("abort", None, 50)
    assert payloads[turn.turn_id].completion == "안녕"


@pytest.mark.django_db
def test_an_answer_that_the_engine_broke_off_says_so(project, exchange):
    record_choices(project.id, exchange, [choice(final=False)], elapsed_ms=50, failure="engine gone")
    (turn,), _ = recorded(project)
    assert (turn.finish_reason, turn.error) == ("error", "engine gone")


@pytest.mark.django_db
def test_text_that_postgres_cannot_keep_is_replaced_and_the_ids_stay(project, exchange):
    made = choice()
    made.text = "a\0b"
    record_choices(project.id, exchange, [made], elapsed_ms=50, failure=None)
    (turn,), payloads = recorded(project)
    assert "\0" not in payloads[turn.turn_id].completion
    assert payloads[turn.turn_id].completion_token_ids == [4, 5, 0]
