"""Ids that senders made up, as part of an address.

Most are plain and stand as they are. One that would break a path (a slash, a space, only dots) is written as `~` and
its UTF-8 in URL-safe base64; both forms lead back to exactly one id.
"""

import base64
import binascii
import re

PLAIN = re.compile(r"(?!\.+$)[A-Za-z0-9_.:@-]+")


class Reference:
    regex = r"[A-Za-z0-9_.:@~=-]+"

    def to_python(self, value: str) -> str:
        if not value.startswith("~"):
            return value
        try:
            text = base64.b64decode(value[1:].encode(), altchars=b"-_", validate=True).decode()
        except binascii.Error as error:  # UnicodeDecodeError is a ValueError already
            raise ValueError(f"{value!r} is no reference") from error
        if "\x00" in text:
            raise ValueError("no stored id holds a NUL")
        if self.to_url(text) != value:
            raise ValueError(f"{value!r} is not how {text!r} is written")
        return text

    def to_url(self, value: str) -> str:
        if PLAIN.fullmatch(value):
            return value
        return "~" + base64.urlsafe_b64encode(value.encode()).decode()


class CheckpointName:
    """`<policy>@<version>`, as the command line and the gateway write it."""

    regex = r"[A-Za-z0-9_-]+@[0-9]{1,9}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: object) -> str:
        return str(value)
