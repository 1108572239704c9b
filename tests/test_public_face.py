"""`rota.__all__` is the whole public face, and it is true."""

import inspect
from dataclasses import dataclass
from types import ModuleType

import rota


def test_every_public_name_resolves() -> None:
    assert [name for name in rota.__all__ if not hasattr(rota, name)] == []


def test_no_public_name_is_left_out() -> None:
    public = {
        name
        for name, value in vars(rota).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - set(rota.__all__) == set()


def test_public_names_are_sorted_and_named_once() -> None:
    assert list(rota.__all__) == sorted(set(rota.__all__), key=constants_then_classes_then_functions)


def test_every_public_name_is_documented() -> None:
    assert [name for name in rota.__all__ if not own_docstring(getattr(rota, name))] == []


def test_a_docstring_that_python_made_up_does_not_count() -> None:
    @dataclass
    class Bare:
        field: int

    class Inherits(Exception):
        pass

    assert own_docstring(Bare) == ""
    assert own_docstring(Inherits) == ""


def own_docstring(value: object) -> str:
    """What its author wrote: neither inherited nor generated from a dataclass's fields."""
    if not inspect.isclass(value):
        return inspect.getdoc(value) or ""
    written = vars(value).get("__doc__") or ""
    return "" if written.startswith(f"{value.__name__}(") else written


def constants_then_classes_then_functions(name: str) -> tuple[int, str]:
    """The order of ruff's RUF022."""
    if name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name
