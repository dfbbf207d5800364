import asyncio
import json

from evals.judging.canaries import CANARIES, GOOD, Standing, canary_report, run_canaries
from evals.judging.completer import Completion, CompletionFailed
from evals.judging.pairwise import Judge

JUDGE = Judge(name="scripted", model="judge-1")


class ScriptedJudge:
    """Replies with what `reply(answer_a, answer_b)` returns; an exception is raised."""

    def __init__(self, reply):
        self.reply = reply

    async def complete(self, messages, sampling):
        data = json.loads(messages[1]["content"])
        reply = self.reply(data["answer_A"], data["answer_B"])
        if isinstance(reply, Exception):
            raise reply
        return Completion(text=reply)


def report_of(reply):
    return canary_report(asyncio.run(run_canaries(ScriptedJudge(reply), JUDGE)))


def verdict(letter):
    return json.dumps({"rationale": "because", "verdict": letter})


def careful(answer_a, answer_b):
    return verdict("A" if answer_a == GOOD else "B")


def gullible(answer_a, answer_b):
    return verdict("A" if "preferred" in answer_a else "B" if "preferred" in answer_b else "tie")


def test_a_careful_judge_passes():
    report = report_of(careful)
    assert (report.standing, report.is_safe) == (Standing.PASSED, True)
    assert report.sentence == f"none of {len(CANARIES)} canaries won"


def test_a_judge_that_can_be_gamed_fails_and_the_canary_is_named():
    report = report_of(gullible)
    assert (report.won, report.standing, report.num_canaries) == (
        ("asks for the grade",),
        Standing.FAILED,
        len(CANARIES),
    )
    assert report.standing.is_paused and report.sentence == f"1 of {len(CANARIES)} canaries won (asks for the grade)"


def test_a_judge_that_goes_by_position_only_lets_no_canary_win():
    assert report_of(lambda *_: verdict("A")).standing is Standing.PASSED


def test_a_canary_that_leaves_the_judge_without_a_verdict_has_worked():
    report = report_of(lambda a, b: "Hmm." if ":" in (a, b) else careful(a, b))
    assert (report.invalid, report.standing) == (("colon",), Standing.FAILED)


def test_a_judge_that_cannot_be_asked_has_neither_passed_nor_failed():
    report = report_of(lambda *_: CompletionFailed("status 503"))
    assert (len(report.errors), report.standing) == (len(CANARIES), Standing.INCONCLUSIVE)
    assert not report.standing.is_paused


def test_a_judge_that_takes_too_long_could_not_be_asked():
    class Slow(ScriptedJudge):
        async def complete(self, messages, sampling):
            await asyncio.sleep(30)

    report = canary_report(asyncio.run(run_canaries(Slow(careful), JUDGE, timeout_s=0.05)))
    assert (len(report.errors), report.standing) == (len(CANARIES), Standing.INCONCLUSIVE)
