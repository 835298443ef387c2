"""What Ollama refuses, and what is refused in its name before it is asked.

``{"error": "text"}``, as the body of a refusal or as a line of a stream. The text may itself be the JSON error of the
llama-server behind it. A foreign Host header gets a 403 without a body.
"""

from __future__ import annotations

from .json_values import read_json
from .openai_errors import error_in, read_error
from .types import EngineFailed, Unsupported


def unsupported(param: str, reason: str) -> Unsupported:
    """A field that would change the answer's shape, and that this engine cannot honour."""
    return Unsupported(f"ollama {reason} ({param})", param)


def invalid(param: str, reason: str) -> EngineFailed:
    """A field of a wrong type or value."""
    return EngineFailed(400, f"{param} {reason}", type="invalid_request_error", code="invalid_value", param=param)


def read_refusal(status: int, body: bytes) -> EngineFailed:
    """Reads the body of an error answer; never raises."""
    if status == 403 and not body.strip():
        return EngineFailed(
            403, "ollama does not take this Host header: it listens on loopback only; start it with OLLAMA_HOST=0.0.0.0"
        )
    failed = unwrapped(read_error(status, body))
    if status == 404 and failed.code is None and "model" in failed.message and "not found" in failed.message:
        failed.code, failed.param = "model_not_found", "model"
    return failed


def unwrapped(failed: EngineFailed) -> EngineFailed:
    """Returns the error that was written as text into the error's message, if there is one."""
    if not failed.message.startswith("{"):
        return failed
    try:
        inner = read_json(failed.message.encode("utf-8", "surrogatepass"))
    except ValueError:
        return failed
    return error_in(inner, status=failed.status) or failed
