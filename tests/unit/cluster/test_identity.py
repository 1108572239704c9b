"""Who a pod is, what it is called, and that no two processes of a machine are the same pod."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cluster import identity as module
from rota.cluster.identity import MachineLock, identity, label, machine
from rota.errors import PodTwin
from rota.settings import PodSettings
from rota.words import PodId

POD = PodId(uuid.UUID("abcd0000-0000-4000-8000-000000000000"))
PLAIN = PodSettings()
parts = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize(
    ("terms", "name"),
    [
        (PLAIN, "rota-worker-abcd"),
        (replace(PLAIN, version="1.2"), "rota-worker-1.2-abcd"),
        (replace(PLAIN, prefix="shop", version="1.2", id="7"), "shop-worker-1.2-7"),
        (replace(PLAIN, prefix="shop", id="7"), "shop-worker-7"),
        (replace(PLAIN, prefix=""), "worker-abcd"),
    ],
)
def test_a_pod_is_labelled_by_prefix_version_and_id(terms: PodSettings, name: str) -> None:
    assert label(terms, POD) == name


def test_without_a_kubernetes_uid_every_boot_is_another_pod() -> None:
    assert len({identity(PLAIN) for _ in range(100)}) == 100


def test_the_same_container_of_the_same_kubernetes_pod_is_the_same_pod() -> None:
    terms = replace(PLAIN, uid="u-1", container="worker")
    assert identity(terms) == identity(replace(terms, version="2", prefix="other", id="9"))


@given(st.tuples(parts.filter(bool), parts), st.tuples(parts.filter(bool), parts))
def test_another_uid_or_container_is_another_pod(one: tuple[str, str], other: tuple[str, str]) -> None:
    same = identity(replace(PLAIN, uid=one[0], container=one[1])) == identity(
        replace(PLAIN, uid=other[0], container=other[1])
    )
    assert same == (one == other)


def test_a_name_is_no_identity() -> None:
    assert identity(replace(PLAIN, id="web-1")) != identity(replace(PLAIN, id="web-1"))


linux = pytest.mark.skipif(sys.platform != "linux", reason="the lock is an abstract unix socket")


@linux
def test_a_lock_is_had_by_one_at_a_time() -> None:
    pod = PodId(uuid.uuid4())
    with MachineLock(pod):
        for _ in range(2):
            with pytest.raises(PodTwin, match="ROTA_POD_UID"), MachineLock(pod):
                raise AssertionError("a second one got in")
    with MachineLock(pod):
        pass


@linux
def test_a_lock_excludes_no_other_pod() -> None:
    with MachineLock(PodId(uuid.uuid4())), MachineLock(PodId(uuid.uuid4())):
        pass


@linux
def test_a_lock_is_gone_with_a_process_that_was_killed() -> None:
    pod = PodId(uuid.uuid4())
    holding = f"""
import sys, uuid
from rota.cluster.identity import MachineLock
with MachineLock(uuid.UUID("{pod}")):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(PodTwin), MachineLock(pod):
            pass
        holder.kill()
        holder.wait()
    with MachineLock(pod):
        pass


@linux
def test_a_machine_is_the_same_for_every_process_on_it() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", "from rota.cluster.identity import machine; print(machine())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.strip() == machine() == machine()


@linux
def test_a_machine_is_one_boot_of_one_kernel_and_one_network() -> None:
    boot, _, network = machine().rpartition("/")
    assert uuid.UUID(boot)
    assert int(network) == os.stat("/proc/self/ns/net").st_ino


def test_where_there_is_no_such_lock_no_machine_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LINUX", False)
    assert machine() != machine()
    with MachineLock(POD), MachineLock(POD):
        pass
