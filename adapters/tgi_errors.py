"""TGI's errors: ``{"error": "text", "error_type": "kind"}``, plain text from its JSON reader, and events in a stream.

OpenAI's routes put ``{"error": {"message": ..., "http_status_code": 422}}`` into a stream, 422 whatever happened: only
the message tells an overload from a mistake of the client's. The native routes name the kind.
"""

from __future__ import annotations

from .json_values import Json
from .openai_errors import error_in, read_error
from .types import EngineFailed

# Kind, how its message begins, and the status it stands for. A client's mistake is 400 as with other engines.
_KINDS = (
    ("overloaded", "Model is overloaded", 429),
    ("validation", "Input validation error", 400),
    ("template_error", "Template error", 400),
    ("missing_template_variable", "Missing template va", 400),  # released with a typing error in its third word
    ("tool_error", "Tool error", 400),
    ("generation", "Request failed during generation", 502),
    ("incomplete_generation_stream", "Incomplete generation stream", 502),
    ("incomplete_generation", "Incomplete generation", 502),
)
# 424 is a failure of the model's process. To anybody else it would be the client's fault, like all of 4xx.
_STATUS = {422: 400, 424: 502}


def tgi_error_in(chunk: Json) -> EngineFailed | None:
    """Returns the error that an event of a stream reports, or None if it is none."""
    failed = error_in(chunk)
    if failed is None:
        return None
    for kind, start, status in _KINDS:
        if failed.type == kind or failed.message.startswith(start):
            return failed.meant(status, type=kind)
    return failed.meant(502)


def read_tgi_error(status: int, body: bytes) -> EngineFailed:
    """Reads the body of an error answer; never raises."""
    return read_error(status, body).meant(_STATUS.get(status, status))
