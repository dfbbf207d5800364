"""Settings -> System, for owners: what runs, what it takes, backups, and the steps that belong to whoever runs it."""

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console.access import MemberRequest, carry_out, member_required
from console.reads import system as reads
from jobs.services import enqueue
from registry.backups import BACKUP_JOB, check_may_begin
from registry.errors import InvalidInput
from registry.models import Role
from registry.quarantine import replay_job
from registry.services import audit
from rl_online.services import retention
from rl_online.services.reset import reset_project, what_goes

LEVELS = ("all", "serving", "none")


@require_safe
@member_required(Role.OWNER)
def system(request: MemberRequest) -> HttpResponse:
    journal = reads.backup_journal()
    disk = reads.disk()
    return render(
        request,
        "settings/system.html",
        {
            "processes": reads.processes(reads.engine_reports()),
            "disk": disk,
            "disk_total": sum(use.bytes or 0 for use in disk),
            "free": reads.free_bytes(),
            "backups": reads.backups(),
            "journal": journal,
            "is_backing_up": journal.get("state") == "running",
            "jobs": reads.given_up_jobs(),
            "versions": reads.versions(),
            "postgres_version": reads.database_version(),
            "sandbox": reads.sandbox_level(),
            "collected_at": retention.last_collected_at(),
            "going": what_goes(),
        },
    )


@require_POST
@member_required(Role.OWNER)
def backup(request: MemberRequest) -> HttpResponse:
    level = request.POST.get("level", "all")

    def act() -> str:
        if level not in LEVELS:
            raise InvalidInput(f"found {level!r}; use one of {', '.join(LEVELS)}", field="level")
        check_may_begin(settings.HOME.root)
        stamp = f"{timezone.now():%Y%m%dT%H%M%SZ}"
        if enqueue(BACKUP_JOB, project_id=None, payload={"stamp": stamp, "level": level}, key="backup") is None:
            return "A backup waits to begin already."
        audit("back up", "system", stamp, actor=request.user.get_username(), after={"files": level})
        return "The backup begins in a moment; this page shows when it is done."

    return carry_out(request, act, back=_page(request))


@require_POST
@member_required(Role.OWNER)
def replay(request: MemberRequest, job: int) -> HttpResponse:
    def act() -> str:
        replayed = replay_job(job, actor=request.user.get_username())
        return f"{replayed.kind} #{replayed.pk} gets five new attempts."

    return carry_out(request, act, back=_page(request))


@require_POST
@member_required(Role.OWNER)
def collect(request: MemberRequest) -> HttpResponse:
    def act() -> str:
        if enqueue(retention.RETENTION_JOB, project_id=request.member.project_id, key=str(request.member.project_id)):
            audit("ask for collection", "files", "retention", actor=request.user.get_username())
        return "Old files are collected in a moment; what went stands in the audit trail."

    return carry_out(request, act, back=_page(request))


@require_POST
@member_required(Role.OWNER)
def reset(request: MemberRequest) -> HttpResponse:
    project = request.member.project

    def act() -> str:
        if request.POST.get("name", "").strip() != project.slug:
            raise InvalidInput(f"type {project.slug} to delete its data", field="name")
        gone = reset_project(project, actor=request.user.get_username())
        return f"{sum(gone.values()):,} rows are deleted; the first checkpoint serves again."

    return carry_out(request, act, back=_page(request))


def _page(request: MemberRequest) -> str:
    return reverse("console:system", args=[request.member.project.slug])
