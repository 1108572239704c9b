"""Optional tools: a test that needs one is skipped without it, and fails where CI demands all."""

import os
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = REPOSITORY / ".tools"

# Debian keeps daemons such as pgbouncer where only root's PATH looks.
SEARCHED = (str(TOOLS), os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin")


def need_tool(name: str) -> Path:
    """Return where the tool is; without it skip the test, or fail it under ROTA_REQUIRE_ALL=1."""
    found = shutil.which(name, path=os.pathsep.join(SEARCHED))
    require(found is not None, f"{name} is not installed (.ci/run installs it)")
    assert found is not None
    return Path(found)


def require(available: bool, reason: str) -> None:
    """Go on if available; otherwise skip the test, or fail it under ROTA_REQUIRE_ALL=1."""
    if available:
        return
    if os.environ.get("ROTA_REQUIRE_ALL") == "1":
        pytest.fail(f"ROTA_REQUIRE_ALL=1, but {reason}", pytrace=False)
    pytest.skip(reason)
