"""Who this pod is: an id that no other bears at the same time, a name for people, and a lock that
proves on this machine that an earlier boot of the same id is gone.
"""

from __future__ import annotations

import socket
import sys
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from rota.errors import PodTwin
from rota.settings import PodSettings
from rota.words import PodId

_NAMESPACE = uuid.UUID("6b1f3c52-8f4e-5d0a-9b57-2f0f6d1c9a44")
_LINUX = sys.platform == "linux"


def identity(terms: PodSettings) -> PodId:
    """Kubernetes' pod UID and the container, else random; never a name, which another may bear."""
    if terms.uid:
        return PodId(uuid.uuid5(_NAMESPACE, f"{terms.uid}/{terms.container}"))
    return PodId(uuid.uuid4())


def label(terms: PodSettings, pod: PodId) -> str:
    """`{prefix}-worker-{version}-{id}`, the version left out when there is none."""
    parts = [terms.prefix, "worker", terms.version, terms.id or pod.hex[:4]]
    return "-".join(part for part in parts if part)


def machine() -> str:
    """Where a lock of ours excludes others: one boot of one kernel, one network namespace.

    The containers of a Kubernetes pod share both, also after a restart. Elsewhere: nowhere.
    """
    if not _LINUX:
        return str(uuid.uuid4())
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"


class MachineLock:
    """An abstract unix socket named after the pod's id: gone with the process, however it ends."""

    def __init__(self, pod: PodId) -> None:
        self._pod = pod
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        if _LINUX:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._socket.bind(f"\0rota-pod-{self._pod}")
            except OSError as error:
                self._socket.close()
                raise PodTwin(
                    "Another process on this machine runs as this pod; stop it, or give each its own "
                    "ROTA_POD_UID or ROTA_POD_CONTAINER."
                ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()
