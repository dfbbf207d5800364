from jobs.services import ClaimedJob, NotYet


def prove_job(job: ClaimedJob) -> None:
    raise NotYet(5)
