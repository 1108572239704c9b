"""Pods as people see and name them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from rota.cli.output import console
from rota.cli.pod_view import find_pod, pod_json, pod_table
from rota.errors import BadInput, PodNotFound
from rota.storage.rows import AssignmentRow, PodRow

A = PodRow(
    id=UUID("aaaa1111-0000-4000-8000-000000000000"),
    incarnation=1,
    name="rota-worker-one",
    state="up",
    zone="eu-1",
    version="2.0",
    capacity=256,
    queues=("emails", "reports"),
    kinds=("send",),
    running=3,
    age=100.0,
    expires_in=9.0,
    leads=True,
)
B = replace(
    A,
    id=UUID("aaaa2222-0000-4000-8000-000000000000"),
    name="rota-worker-two",
    state="draining",
    expires_in=-4.0,
    leads=False,
)
PODS = [A, B]
SLOTS = [
    AssignmentRow("emails", A.id, A.name, "up", target=4, held=6, acting=4, running=3),
    AssignmentRow("reports", A.id, A.name, "up", target=1, held=1, acting=1, running=0),
    AssignmentRow("emails", B.id, B.name, "silent", target=0, held=2, acting=0, running=2),
]


@pytest.mark.parametrize("wanted", [A.name, str(A.id), "aaaa1", "rota-worker-o"])
def test_a_pod_is_found_by_name_id_or_how_one_of_them_begins(wanted: str) -> None:
    assert find_pod(wanted, PODS) is A


def test_a_whole_name_is_no_beginning_of_another() -> None:
    assert find_pod(A.name, [replace(A, id=B.id, name=f"{A.name}-2"), A]) is A


@pytest.mark.parametrize("wanted", ["rota", "aaaa"])
def test_a_beginning_of_several_names_them(wanted: str) -> None:
    with pytest.raises(BadInput, match=rf'"{wanted}" may be rota-worker-one \(aaaa1111\), rota-worker-two'):
        find_pod(wanted, PODS)


def test_names_that_are_borne_twice_are_told_apart_by_id() -> None:
    twin = replace(B, name=A.name)
    with pytest.raises(BadInput, match=r"\(aaaa1111\), rota-worker-one \(aaaa2222\); write more"):
        find_pod(A.name, [A, twin])
    assert find_pod("aaaa2", [A, twin]) is twin


@pytest.mark.parametrize("wanted", ["zzz", ""])
def test_a_pod_that_is_not_there_is_told_who_is(wanted: str) -> None:
    with pytest.raises(PodNotFound, match=r"there are rota-worker-one \(aaaa1111\), rota-worker-two"):
        find_pod(wanted, PODS)
    with pytest.raises(PodNotFound, match=r"there is none\.$"):
        find_pod(wanted, [])


def test_pods_are_a_line_each_and_the_leader_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    console().print(pod_table(PODS, SLOTS))
    _, first, second = (" ".join(line.split()) for line in capsys.readouterr().out.splitlines())
    assert first == "rota-worker-one * aaaa1111 up 2.0 eu-1 emails, reports 7/5 3/256 1m40s in 9s"
    assert second == "rota-worker-two aaaa2222 silent 2.0 eu-1 emails, reports 2/0 3/256 1m40s 4s ago"


def test_a_pod_is_told_to_machines_with_its_slots() -> None:
    told = pod_json(A, SLOTS)
    assert (told["id"], told["state"], told["held"], told["target"]) == (str(A.id), "up", 7, 5)
    assert pod_json(B, SLOTS)["state"] == "silent"
