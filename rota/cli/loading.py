"""Finds the user's App by its name, module:attribute, and says in one sentence why it cannot."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from importlib import import_module
from types import TracebackType
from typing import Any

from rota.errors import BadInput, BadSettings
from rota.runtime.app import App

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def load_app(name: str) -> App:
    """The App that `module:attribute` names; modules of the current directory are found too."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise BadSettings(f'"{name}" names no app; write module:attribute, as in shop.jobs:app.')
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    return _app(name, _attribute(module, attribute))


def _attribute(module: str, attribute: str) -> Any:
    found: Any = _import(module)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise BadInput(
                f'Module "{module}" has no attribute "{attribute}"; is the app called otherwise?'
            ) from None
    return found


def _app(name: str, found: Any) -> App:
    if not isinstance(found, App):
        raise BadInput(f'"{name}" is a {type(found).__name__} and not a rota.App.')
    return found


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise BadInput(
                f'There is no module "{module}" to import from {os.getcwd()} or the installed packages.'
            ) from None
        raise _failed(module, error) from error
    except (Exception, SystemExit) as error:  # whatever a user's module may raise
        raise _failed(module, error) from error


def _failed(module: str, error: BaseException) -> BadInput:
    what = traceback.format_exception_only(error)[-1].strip().rstrip(".")
    return BadInput(
        f'Importing "{module}" failed with {what} ({_place(error, module)}); '
        f"python -c 'import {module}' shows the whole traceback."
    )


def _place(error: BaseException, module: str) -> str:
    """file:line of the last line of the user's own code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    places = _places(error.__traceback__, module.partition(".")[0])
    own = [place for place, theirs in places if theirs]
    return (own or [place for place, _ in places])[-1]


def _places(trace: TracebackType | None, package: str) -> list[tuple[str, bool]]:
    """Each frame's file:line, and whether that is the user's code."""
    found = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        owner = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        library = owner in ("rota", "importlib") or file.startswith(("<", *_LIBRARIES))
        found.append((f"{file}:{trace.tb_lineno}", owner == package or not library))
        trace = trace.tb_next
    return found
