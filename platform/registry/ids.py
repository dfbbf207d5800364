"""Ids that sort by the time they were made (UUIDv7, RFC 9562)."""

import uuid

import uuid_utils


def new_uuid() -> uuid.UUID:
    return uuid.UUID(int=uuid_utils.uuid7().int)


def new_id() -> str:
    return str(new_uuid())
