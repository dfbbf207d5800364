"""One notice as one e-mail, through Django's e-mail backend (`EMAIL_URL`)."""

import smtplib
import time
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage

from registry.webhooks import Attempt


def send(address: str, *, subject: str, facts: Mapping[str, Any], link: str) -> Attempt:
    """Never raises for what the mail server does: every failure is an Attempt that says so."""
    began = time.monotonic()
    lines = [f"{name}: {value}" for name, value in facts.items() if isinstance(value, str | int | float)]
    body = "\n".join([subject, "", *lines, "", link, ""])
    message = EmailMessage(
        subject=" ".join(subject.split())[:200],
        body=body,
        from_email=settings.DEFAULT_FROM_EMAIL,
        to=[address],
        headers={"auto-submitted": "auto-generated"},
    )
    try:
        message.send()
    except smtplib.SMTPRecipientsRefused as error:
        return _failed(began, error, is_final=True)
    except (smtplib.SMTPException, OSError) as error:
        return _failed(began, error)
    return Attempt(status=250, duration_ms=_ms(began), excerpt="taken by the mail server")


def _failed(began: float, error: Exception, *, is_final: bool = False) -> Attempt:
    said = f"{type(error).__name__}: {error}"[:1000].replace("\0", "\ufffd")
    return Attempt(status=None, duration_ms=_ms(began), excerpt=said, is_final=is_final)


def _ms(began: float) -> float:
    return round(1000 * (time.monotonic() - began), 1)
