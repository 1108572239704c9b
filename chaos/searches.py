"""The searches by name: those of the tests, and the longer ones of `make explore`.

make explore                              every search
make explore ARGS="--search NAME"         one of them
make explore ARGS="--variant NAME"        a broken rule, and the shortest script that breaks it
make explore ARGS="--list"                the names
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from .explorer import Result, explore
from .protocol import Setting
from .variants import VARIANTS, Variant

COMMON = Setting(pauses=False, drains=False, plans="any", refused=False)
"""Two pods, two slots, one beat under way: beats, plans from any view, shares, claims, resizes, fences,
deaths, expiry and boots, as often as one likes. Each search adds what is rarer."""
ONE = COMMON._replace(slots=1)

IN_TESTS: Mapping[str, Setting] = {
    "everything": Setting(),
    "pauses": COMMON._replace(pauses=True),
    "drains": COMMON._replace(drains=True),
    "claims": COMMON._replace(riding=True, giving_up=True),
    "late-beats": Setting(slots=1),
    "two-beats": ONE._replace(beats=2),
    "late-boots": ONE._replace(late_boots=True),
    "leaders": ONE._replace(plans="sent", resizes=False),
    "failover": ONE._replace(failover=True, resizes=False),
    "failover-resizes": ONE._replace(failover=True, ends=False),
}
LONG: Mapping[str, Setting] = {
    "three-slots": COMMON._replace(slots=3),
    "three-pods": COMMON._replace(pods=3, slots=1),
    "two-slots-two-beats": COMMON._replace(beats=2),
}


def main() -> None:
    """The command line."""
    searches = {**IN_TESTS, **LONG}
    parser = argparse.ArgumentParser(prog="explore", description="Search every state of the protocol.")
    parser.add_argument("--search", action="append", choices=searches, help="only this one")
    parser.add_argument("--variant", action="append", choices=VARIANTS, help="a broken rule")
    parser.add_argument("--list", action="store_true", help="print the names")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(_listing()))
        return
    broken = False
    for name in asked.search or (() if asked.variant else searches):
        print(f"{name}: {described(searches[name])}", flush=True)
        result = explore(searches[name], tell=lambda line: print(line, flush=True))
        print(result, flush=True)
        broken = broken or bool(result.broken)
    for name in asked.variant or ():
        print(f"{name}: {VARIANTS[name].words}", flush=True)
        print(caught(VARIANTS[name]), flush=True)
    raise SystemExit(broken)


def caught(variant: Variant) -> Result:
    """What a broken rule breaks, and how."""
    return explore(variant.setting, variant.rules, asserting=[variant.breaks])


def described(setting: Setting) -> str:
    """A setting in words: its sizes, and what differs from a plain one."""
    sizes = f"{setting.pods} pods, {setting.slots} slots, {setting.beats} beats under way"
    rest = [
        name if value is True else f"no {name}" if value is False else f"{name} {value}"
        for name, value, usual in zip(Setting._fields, setting, Setting(), strict=True)
        if value != usual and name not in ("pods", "slots", "beats")
    ]
    return ", ".join([sizes, *rest])


def _listing() -> Iterator[str]:
    yield from (f"search   {name}: {described(setting)}" for name, setting in IN_TESTS.items())
    yield from (f"search   {name}: {described(setting)} (long)" for name, setting in LONG.items())
    yield from (f"variant  {name}: {variant.words}" for name, variant in VARIANTS.items())


if __name__ == "__main__":
    main()
