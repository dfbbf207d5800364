"""What an importer says when a file cannot be read."""


class Unreadable(Exception):
    """The file is not what it claims to be. `where` is a line, a member or a field; the text says how to mend it."""

    def __init__(self, reason: str, *, where: str = "") -> None:
        self.reason, self.where = reason, where
        super().__init__(f"{where}: {reason}" if where else reason)
