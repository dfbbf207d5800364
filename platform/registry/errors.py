"""What can go wrong for a caller, once for all rooms.

StropError
├── InvalidInput (400)   a field of the request is wrong; `field` names it
├── Unauthorized (401)   no key, or one that does not open anything
├── Forbidden (403)      a member or key without the role or scope
├── NotFound (404)       also for what belongs to another project
├── Conflict (409)       the same id with another body, or a state that does not allow the step
├── TooLarge (413)
├── RateLimited (429)    `retry_after_s`
└── Unavailable (503)    `retry_after_s`
"""


class StropError(Exception):
    status = 500
    code = "error"

    def __init__(self, message: str, *, field: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s


class InvalidInput(StropError, ValueError):
    status = 400
    code = "invalid"


class Unauthorized(StropError):
    status = 401
    code = "unauthorized"


class Forbidden(StropError):
    status = 403
    code = "forbidden"


class NotFound(StropError):
    status = 404
    code = "not_found"


class Conflict(StropError):
    status = 409
    code = "conflict"


class TooLarge(StropError):
    status = 413
    code = "too_large"


class UnsupportedMedia(StropError):
    status = 415
    code = "unsupported_media"


class RateLimited(StropError):
    status = 429
    code = "rate_limited"


class Unavailable(StropError):
    status = 503
    code = "unavailable"
