"""Keeps a LISTEN connection up, and says whether notices arrive."""

from __future__ import annotations

from collections.abc import Callable

from rota.errors import DatabaseRefused, DatabaseUnavailable
from rota.events import ListenProbed, Tell
from rota.service import Service

from ..storage.notices import Notices, Receive
from ..storage.pool import Database


class Listener(Service):
    """Listens again whenever the connection is lost."""

    doing = "listening for notices"

    def __init__(
        self, database: Database, receive: Receive, changed: Callable[[bool], None], tell: Tell
    ) -> None:
        super().__init__(tell)
        self._notices = Notices(database, receive)
        self._changed = changed

    async def step(self) -> None:
        try:
            await self._notices.listen(self._listening)
        except (DatabaseUnavailable, DatabaseRefused) as error:
            self._changed(False)
            # Nothing depends on notices: a wrong direct URL is told and tried again, no reason to end.
            raise DatabaseUnavailable(str(error)) from error

    def _listening(self, works: bool) -> None:
        self._patience.over()
        reason = (
            "notices arrive"
            if works
            else "no notice came back, as through a transaction pooler; polling instead"
        )
        self._tell(ListenProbed(works, reason))
        self._changed(works)
