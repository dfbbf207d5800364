from jobs.services import ClaimedJob
from rl_online.services.holdings import JUDGE_JOB

__all__ = ["JUDGE_JOB", "judge_job"]


def judge_job(job: ClaimedJob) -> None:
    return
