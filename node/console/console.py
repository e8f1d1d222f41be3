"""The console of one node: its table of routes, behind the gate, and what it remembers.

    browser ─▶ gate.py ─▶ routes() ─▶ pages/*.py ─▶ the node's memory
                                                └─▶ cluster_clients.py ─▶ the cluster, as the caller
               sampler.py, once a second ─▶ history.py

docs/decisions/0081-a-console-in-each-node.md has the rules.
"""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from ..process.tasks import cancelled
from ..settings.host_port import split_endpoint
from .answers import Assets
from .cluster_clients import ClientPool, Loopback
from .gate import PREFIX, Gate
from .logins import Logins
from .origins import OwnNames
from .pages.cluster_page import ClusterPage
from .pages.dead_letters_page import DeadLettersPage
from .pages.delayed_page import DelayedPage
from .pages.groups_page import GroupsPage
from .pages.messages_page import MessagesPage
from .pages.store_page import StorePage
from .pages.topics_page import TopicsPage
from .pages.transactions_page import TransactionsPage
from .pages.work_page import WorkPage
from .sampler import Sampler
from .served_node import ServedNode
from .visit import Json, Needs, Place, Route, Visit

OPEN_FILES = ("login.html", "login.js", "style.css", "icon.svg")
"""What a browser needs before it is known who sits there."""
SHELL = "index.html"


class Console:
    """See the module."""

    prefix = PREFIX

    def __init__(self, node: ServedNode) -> None:
        self._node = node
        self._assets = Assets()
        self._sampler = Sampler(node)
        self._pool = ClientPool(self._loopback)
        config, keeper = node.config, node.security.doorkeeper
        self._asks_who = keeper.active
        self._logins = Logins(
            keeper if keeper.active else None,
            config.console.idle_minutes * 60.0,
            self._pool.drop,
            node_id=config.node_id,
            prefix=PREFIX,
            tls=node.security.tls is not None,
        )
        hosts = (config.advertise, config.listen, config.http_listen)
        names = OwnNames((*config.console.hosts, *(split_endpoint(h)[0] for h in hosts if h)))
        self._gate = Gate(config.console, keeper, self._pool, self._assets, self._logins, names)
        self._pages = (
            ClusterPage(node, self._sampler),
            TopicsPage(node, self._sampler),
            GroupsPage(node),
            MessagesPage(node),
            WorkPage(node),
            DeadLettersPage(node),
            DelayedPage(node),
            TransactionsPage(node),
            StorePage(node, self._sampler),
        )
        self._task: asyncio.Task[None] | None = None

    def routes(self) -> Sequence[Route]:
        """Every path below /console. What is not here is not served."""
        files = tuple(self._file(name) for name in self._assets.names if name != SHELL)
        return (
            Route("GET", "/", Needs.CALLER, self._shell, page=True, place=Place.FILE),
            *files,
            Route("POST", "/api/login", Needs.NOTHING, self._logins.log_in, most_body_bytes=4_096),
            Route("POST", "/api/logout", Needs.CALLER, self._logins.log_out),
            Route("GET", "/api/session", Needs.CALLER, self._session),
            *(route for page in self._pages for route in page.routes()),
        )

    def add_to(self, application: web.Application) -> None:
        """Serve the routes, behind the gate."""
        routes = self.routes()
        self._gate.admit(routes)
        application.middlewares.append(self._gate.let_in)
        application.router.add_get(PREFIX, _to_shell)
        for route in routes:
            application.router.add_route(route.method, PREFIX + route.path, _never)
        application.on_startup.append(self._start)
        application.on_cleanup.append(self._stop)

    async def _start(self, _: web.Application) -> None:
        self._task = asyncio.create_task(self._sampler.run(), name="console")

    async def _stop(self, _: web.Application) -> None:
        if self._task is not None:
            await cancelled(self._task)
        self._logins.sessions.close_all()
        await self._pool.close()

    def _loopback(self) -> Loopback:
        config, tls = self._node.config, self._node.config.tls
        # the node's own certificate, where none of a connection would be let in without one: the
        # token or pass decides who calls
        own = (tls.cert_file, tls.key_file) if tls.requires_certificates else (None, None)
        files = (tls.ca_file, *own)
        ca_file, cert_file, key_file = ("" if each is None else str(each) for each in files)
        endpoint = self._node.endpoints.advertise
        return Loopback(endpoint, ca_file, cert_file, key_file, insecure=config.insecure)

    # ---- the page itself

    def _file(self, name: str) -> Route:
        needs = Needs.NOTHING if name in OPEN_FILES else Needs.CALLER

        async def answer(visit: Visit) -> web.StreamResponse:
            return self._assets.answer(name, visit.request)

        return Route("GET", f"/{name}", needs, answer, place=Place.FILE)

    async def _shell(self, visit: Visit) -> web.StreamResponse:
        return self._assets.answer(SHELL, visit.request)

    async def _session(self, visit: Visit) -> Json:
        """Who is here and may do what; the token for changes."""
        config = self._node.config
        return {
            "name": visit.name,
            "asks_who": self._asks_who,
            "by_certificate": visit.session.certificate is not None,
            "writes": config.console.writes and visit.admin,
            "sends": config.console.writes,
            "read_only_because": ""
            if config.console.writes and visit.admin
            else "[console] writes is false"
            if not config.console.writes
            else "this identity may not administer",
            "csrf": visit.session.csrf,
            "cluster_id": config.cluster_id,
            "node": config.node_id,
        }


async def _to_shell(_: web.Request) -> web.StreamResponse:
    raise web.HTTPPermanentRedirect(PREFIX + "/")


async def _never(request: web.Request) -> web.StreamResponse:
    raise AssertionError(f"{request.path}: the gate answers")
