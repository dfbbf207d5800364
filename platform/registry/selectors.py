"""Reads that go across tenants, on purpose: which projects a person belongs to."""

from django.contrib.auth.models import AbstractBaseUser

from registry.models import Member
from registry.tenancy import directory


def memberships(user: AbstractBaseUser) -> list[Member]:
    """The person's memberships with their projects, by project name."""
    with directory():
        members = Member._base_manager.filter(user=user).select_related("project").order_by("project__name")
        return list(members)


def membership(user: AbstractBaseUser, project_slug: str) -> Member | None:
    """Membership in one project; None also when there is no such project."""
    with directory():
        return (
            Member._base_manager.filter(user=user, project__slug=project_slug).select_related("project", "user").first()
        )
