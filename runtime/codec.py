"""Payloads and results between Python and JSON text, checked on the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, from_json, to_json

from rota.errors import BadInput, BadPayload

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Codec:
    """One payload type, written and read."""

    __slots__ = ("_adapter", "_whose", "decode")

    def __init__(self, whose: str, annotation: Any) -> None:
        self._whose = whose
        self._adapter = None if annotation in (Any, None) else _adapter(whose, annotation)
        # Not orjson, which makes floats of large integers.
        self.decode: Callable[[str], Any] = (
            from_json if self._adapter is None else self._adapter.validator.validate_json
        )
        """JSON text to payload; raises ValidationError when it does not fit."""

    def encode(self, payload: Any, limit: int) -> str:
        """Payload to JSON text, or BadPayload with the field that is wrong."""
        if self._adapter is None:
            return encode_any(payload, f"payload of {self._whose}", limit)
        try:
            payload = self._adapter.validator.validate_python(payload)
            text = self._adapter.serializer.to_json(payload, by_alias=True, round_trip=True).decode()
            if "\N{REPLACEMENT CHARACTER}" in text:
                # Pydantic puts it for lone surrogates in typed keys; in plain ones it says so.
                to_json(self._adapter.serializer.to_python(payload))
        except ValidationError as error:
            raise BadPayload(f"The payload of {self._whose} does not fit: {first_problem(error)}.") from None
        except (PydanticSerializationError, UnicodeError, ValueError) as error:
            raise BadPayload(f"The payload of {self._whose} cannot be written as JSON: {error}.") from None
        check_text(text, f"payload of {self._whose}", limit)
        try:
            # NaN, an alias or a serializer of the user's own may not come back as it went; better
            # to hear of it here than from a dead job.
            self.decode(text)
        except ValidationError as error:
            raise BadPayload(
                f"The payload of {self._whose} cannot be read again from JSON: {first_problem(error)}."
            ) from None
        return text


def _adapter(whose: str, annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation)
    except PydanticUserError as error:
        raise BadInput(f"The payload type of {whose} cannot be used: {str(error).splitlines()[0]}") from None


def encode_any(value: Any, what: str, limit: int) -> str:
    """Any value that has a JSON form, as text."""
    try:
        text = to_json(value, inf_nan_mode="strings").decode()
    except (PydanticSerializationError, UnicodeError, ValueError) as error:
        raise BadPayload(f"The {what} cannot be written as JSON: {error}.") from None
    return check_text(text, what, limit)


def check_text(text: str, what: str, limit: int) -> str:
    """JSON text that Postgres and the size limit allow."""
    if "\\u0000" in text and _NUL.search(text):
        raise BadPayload(
            f"The {what} holds a NUL character, which Postgres cannot keep; remove or encode it."
        )
    size = len(text) if text.isascii() else len(text.encode())
    if size > limit:
        raise BadPayload(
            f"The {what} has {size:,} bytes and the limit is {limit:,}; keep large things elsewhere "
            "and pass their key, or raise ROTA_JOB_MAX_PAYLOAD."
        )
    return text


def first_problem(error: ValidationError) -> str:
    """The first thing wrong, with its field, in half a sentence."""
    problem = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in problem["loc"]) or "the value"
    more = error.error_count() - 1
    return f"{field}: {problem['msg']}" + (f" (and {more} more)" if more else "")
