"""Payloads as the command line takes them."""

import io
from pathlib import Path

import pytest

from rota.cli.payload import read_payload
from rota.errors import BadPayload


def test_the_argument_is_json() -> None:
    assert read_payload('{"to": "a@b.c", "n": [1, null]}') == {"to": "a@b.c", "n": [1, None]}


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('["from stdin"]'))
    assert read_payload("-") == ["from stdin"]


def test_an_at_sign_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text('{"ü": 1}', encoding="utf-8")
    assert read_payload(f"@{tmp_path}/payload.json") == {"ü": 1}


def test_an_integer_beyond_64_bits_is_not_bent() -> None:
    assert read_payload("18446744073709551617") == 2**64 + 1


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("{to: 1}", r"The payload is not JSON: .* at line 1, column 2\."),
        ("", "The payload is not JSON"),
        ("NaN", "holds NaN, which JSON does not have"),
        ("[-Infinity]", "holds -Infinity"),
        ("1e999", "holds 1e999, which is too large"),
        ("[" * 100_000, "nested too deeply"),
        ("@/does/not/exist.json", r"cannot be read from /does/not/exist\.json: No such file"),
    ],
)
def test_what_is_no_payload_is_refused_in_a_sentence(argument: str, said: str) -> None:
    with pytest.raises(BadPayload, match=said):
        read_payload(argument)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadPayload, match="not UTF-8"):
        read_payload(f"@{tmp_path}/image")
