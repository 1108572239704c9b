"""Payloads and results between Python and JSON text."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field

from rota.errors import BadInput, BadPayload
from rota.runtime.codec import Codec, encode_any, first_problem

MUCH = 1_000_000


class Email(BaseModel):
    to: str
    cc: list[str] = []
    size: float = 0.0


class Cat(BaseModel):
    sort: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    sort: Literal["dog"] = "dog"
    name: str


Pet = Annotated[Cat | Dog, Field(discriminator="sort")]


@dataclass
class Point:
    x: int
    y: int


class Aliased(BaseModel):
    sender: str = Field(alias="from")


class Computing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    width: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


class Stubborn(BaseModel):
    """Reads one name and writes another."""

    size: int = Field(validation_alias="Size", serialization_alias="s-i-z-e")


# Whatever pydantic itself can take in and give out again.
ROUND_TRIPS: list[tuple[Any, Any]] = [
    (Email, Email(to="a@b.c", cc=["ü", "😀"], size=1.5)),
    (Pet, Dog(name="Rex")),
    (Pet, Cat()),
    (list[Pet], [Cat(), Dog(name="Rex")]),
    (Point, Point(1, 2)),
    (Aliased, Aliased(**{"from": "me"})),
    (Computing, Computing(width=3)),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (UUID, UUID(int=7)),
    (Decimal, Decimal("1.10")),
    (dict[int, set[str]], {1: {"a"}}),
    (tuple[int, str], (1, "a")),
    (int, 2**70 + 1),
    (Email | None, None),
    (Any, {"a": [1, 2.5, None, True, "ü"]}),
    (dict[str, str], {"\ufffd": "\ufffd"}),
    (Any, None),
    (Any, [2**70 + 1, -(2**70) - 1]),
]


@pytest.mark.parametrize(("type_", "payload"), ROUND_TRIPS, ids=[str(payload) for _, payload in ROUND_TRIPS])
def test_a_payload_comes_back_as_it_went(type_: Any, payload: Any) -> None:
    codec = Codec("send", type_)
    assert codec.decode(codec.encode(payload, MUCH)) == payload


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
)


@given(json_values)
def test_whatever_is_json_comes_back_as_it_went_where_no_type_is_given(value: Any) -> None:
    codec = Codec("send", Any)
    assert codec.decode(codec.encode(value, MUCH)) == value


def test_a_dict_is_taken_for_a_model() -> None:
    assert orjson.loads(Codec("send", Email).encode({"to": "a"}, MUCH)) == {"to": "a", "cc": [], "size": 0.0}


@pytest.mark.parametrize(
    ("type_", "payload", "said"),
    [
        (Email, {"too": "a"}, "The payload of send does not fit: to: Field required."),
        (Email, {"to": "a", "cc": ["b", 7]}, "cc.1: Input should be a valid string"),
        (Email, {"to": 1, "cc": 2}, "(and 1 more)"),
        (Email, None, "the value: Input should be"),
        (Email, "a", "the value: Input should be"),
        (Pet, {"sort": "cow"}, "'cow' found using 'sort' does not match any of the expected tags"),
        (Pet, {"sort": "dog"}, "dog.name: Field required"),
        (int, "many", "the value: Input should be a valid integer"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_with_its_field(type_: Any, payload: Any, said: str) -> None:
    with pytest.raises(BadPayload) as refused:
        Codec("send", type_).encode(payload, MUCH)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


NULS: list[Callable[[str], Any]] = [
    lambda nul: nul,
    lambda nul: {"a": [f"b{nul}"]},
    lambda nul: {nul: 1},
    lambda nul: f"\\{nul}",
    lambda nul: f"\\\\{nul}",
    lambda nul: f'"{nul}',
]


@pytest.mark.parametrize("shape", NULS)
@pytest.mark.parametrize("type_", [Any, str | dict[str, Any]])
def test_a_nul_is_refused_wherever_it_stands(shape: Callable[[str], Any], type_: Any) -> None:
    with pytest.raises(BadPayload, match="NUL"):
        Codec("send", type_).encode(shape("\x00"), MUCH)


@pytest.mark.parametrize("text", ["\\u0000", "a\\\\u0000", "u0000", "\\\\\\u0000"])
def test_text_that_only_looks_like_a_nul_is_let_through(text: str) -> None:
    assert orjson.loads(encode_any(text, "payload", MUCH)) == text


@given(st.text(alphabet=["\\", "u", "0", "\x00", '"', "a"], max_size=12))
def test_exactly_the_texts_with_a_nul_are_refused(text: str) -> None:
    try:
        encoded = encode_any(text, "payload", MUCH)
    except BadPayload:
        assert "\x00" in text
    else:
        assert "\x00" not in text
        assert orjson.loads(encoded) == text


@pytest.mark.parametrize("payload", ["\ud800", {"a": "x\udfff"}, {"\ud83d": 1}, ["\ude00\ud83d"]])
@pytest.mark.parametrize("type_", [Any, str | list[Any] | dict[str, Any]])
def test_a_lone_surrogate_is_refused(payload: Any, type_: Any) -> None:
    with pytest.raises(BadPayload, match="payload of send"):
        Codec("send", type_).encode(payload, MUCH)


def test_a_lone_surrogate_in_a_key_deep_inside_a_model_is_refused() -> None:
    class Nested(BaseModel):
        words: dict[str, int]

    with pytest.raises(BadPayload, match="payload of send"):
        Codec("send", Nested).encode(Nested(words={"\ud83d": 1}), MUCH)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_know_is_refused_where_it_could_not_be_read_again(odd: float) -> None:
    with pytest.raises(BadPayload, match="size"):
        Codec("send", Email).encode(Email(to="a", size=odd), MUCH)


@pytest.mark.parametrize(("odd", "text"), [(math.nan, '"NaN"'), (math.inf, '"Infinity"')])
def test_a_number_that_json_does_not_know_is_a_word_where_no_type_is_given(odd: float, text: str) -> None:
    assert encode_any(odd, "result of send", MUCH) == text


def test_a_type_that_cannot_read_what_it_writes_is_noticed_at_enqueue_and_not_at_run() -> None:
    with pytest.raises(BadPayload, match=r"cannot be read again.*Size: Field required"):
        Codec("send", Stubborn).encode({"Size": 3}, MUCH)


@pytest.mark.parametrize("value", [object(), {"f": print}, b"\xff", {1: object()}])
def test_what_has_no_json_form_is_refused(value: Any) -> None:
    with pytest.raises(BadPayload, match="The result of send cannot be written as JSON"):
        encode_any(value, "result of send", MUCH)


def test_what_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    for type_ in (Any, dict[str, Any]):
        with pytest.raises(BadPayload):
            Codec("send", type_).encode(loop, MUCH)


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    for type_ in (Any, list[Any]):
        with pytest.raises(BadPayload):
            Codec("send", type_).encode(deep, MUCH)


@pytest.mark.parametrize("type_", [Any, str])
def test_the_size_limit_is_in_bytes_and_inclusive(type_: Any) -> None:
    codec = Codec("send", type_)
    assert codec.encode("x" * 98, 100) == '"' + "x" * 98 + '"'
    with pytest.raises(BadPayload, match="has 101 bytes and the limit is 100"):
        codec.encode("x" * 99, 100)
    with pytest.raises(BadPayload, match="has 102 bytes"):
        codec.encode("ü" * 50, 100)


def test_too_large_a_payload_says_what_to_do() -> None:
    with pytest.raises(
        BadPayload, match=r"1,048,579 bytes .* 1,048,576; .*pass their key.*ROTA_JOB_MAX_PAYLOAD"
    ):
        Codec("send", Any).encode("x" * (1024 * 1024 + 1), 1024 * 1024)


def test_json_that_does_not_fit_raises_a_value_error_with_the_field() -> None:
    with pytest.raises(ValidationError) as raised:
        Codec("send", Email).decode('{"to": 5}')
    assert first_problem(raised.value) == "to: Input should be a valid string"
    with pytest.raises(ValueError, match="EOF"):
        Codec("send", Any).decode("{")


def test_a_type_that_pydantic_does_not_know_is_refused_at_registration() -> None:
    class Socket:
        pass

    with pytest.raises(BadInput, match=r"send.*Socket"):
        Codec("send", Socket)
