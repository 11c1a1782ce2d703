"""Holds the errors that the stand-in of Google Cloud answers requests with."""

CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class ApiError(Exception):
    """A request that is answered with an error.

    Args:
      code: HTTP status.
      message: Error message, in the real service's words.
      status: Name of the gRPC code. Default: the usual one for the HTTP status.
      details: Details, as JSON values of google.rpc's messages.
    """

    def __init__(self, code: int, message: str, status: str = "", details: tuple[dict[str, object], ...] = ()):
        super().__init__(message)
        self.code = code
        self.status = status or CODES[code]
        self.document = {"error": {"code": code, "message": message, "status": self.status, "details": [*details]}}
