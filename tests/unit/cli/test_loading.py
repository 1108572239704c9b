"""Finding the user's App, and saying in one sentence why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rota.cli.loading import load_app
from rota.errors import BadInput

SOUND = "from rota import App\napp = App()\nclass Held:\n    app = app\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that the command is run in; what it imports is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


@pytest.mark.parametrize("name", ["shop_sound:app", "shop_sound:Held.app"])
def test_an_app_is_found_in_the_current_directory(project: Path, name: str) -> None:
    (project / "shop_sound.py").write_text(SOUND)
    assert type(load_app(name)).__name__ == "App"


@pytest.mark.parametrize("name", ["", "shop", "shop:", ":app", "shop.jobs"])
def test_a_name_without_both_parts_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(BadInput, match=r"write module:attribute, as in shop\.jobs:app"):
        load_app(name)


@pytest.mark.parametrize("name", ["shop_missing:app", "shop_missing.jobs:app"])
def test_a_missing_module_is_named_with_the_directory(project: Path, name: str) -> None:
    with pytest.raises(BadInput, match=rf'no module "{name[:-4]}" to import from {project}'):
        load_app(name)


def test_a_missing_attribute_is_named(project: Path) -> None:
    (project / "shop_other.py").write_text("application = 1\n")
    with pytest.raises(BadInput, match='Module "shop_other" has no attribute "app"'):
        load_app("shop_other:app")


def test_what_is_not_an_app_is_named_by_its_type(project: Path) -> None:
    (project / "shop_wrong.py").write_text("app = {}\n")
    with pytest.raises(BadInput, match=r'"shop_wrong:app" is a dict and not a rota\.App'):
        load_app("shop_wrong:app")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("\n\nx = 1 / 0\n", r"ZeroDivisionError: division by zero \({file}:3\)"),
        ("import shop_nowhere\n", r"ModuleNotFoundError: No module named 'shop_nowhere' \({file}:1\)"),
        ("\ndef broken(:\n", r"SyntaxError: invalid syntax \({file}:2\)"),
        ("import sys\nsys.exit(3)\n", r"SystemExit: 3 \({file}:2\)"),
        ("import json\njson.loads('x')\n", r"JSONDecodeError: .* \({file}:2\)"),
        (f"{SOUND}@app.job()\ndef job(a, b, c): ...\n", r"BadInput: .* \({file}:5\)"),
    ],
)
def test_a_module_that_fails_names_the_exception_and_the_users_line(
    project: Path, source: str, said: str
) -> None:
    file = project / "shop_broken.py"
    file.write_text(source)
    with pytest.raises(BadInput, match=said.format(file=file)) as refused:
        load_app("shop_broken:app")
    assert "\n" not in str(refused.value)


def test_the_line_is_that_of_the_module_where_it_failed(project: Path) -> None:
    (project / "shop_outer.py").write_text("import shop_inner\n")
    (project / "shop_inner.py").write_text("\nraise RuntimeError('no')\n")
    with pytest.raises(BadInput, match=r"RuntimeError: no \(.*shop_inner\.py:2\)"):
        load_app("shop_outer:app")
