"""The desk: what is asked over HTTP, done by the user's own control.

    GET   /status /history /bins /timeline         POST  /plan /migrate /rescale /rebalance /drain
          /metrics /progress                             /pause /resume /cancel

Neighbours: service/server.py receives, service/views.py puts the answers in form.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from megaphone.checks import numeral, shown, unused, whole
from megaphone.control.controller import Migration, MigrationSummary
from megaphone.control.forecast import left
from megaphone.control.plan import Plan
from megaphone.engine.spark.run import Run
from megaphone.errors import MegaphoneError, PlanError
from megaphone.service import prometheus, views, wishes
from megaphone.service.answers import FAILED, NO_QUERY, Answer, Refusal, Request
from megaphone.service.directory import query_matches
from megaphone.service.encoding import encode_json, encode_text
from megaphone.service.status import BinsStatus

if TYPE_CHECKING:
    from megaphone.engine.spark.control import Control

LINES = "application/jsonl"

OPTIONS = {
    "/status": ("query",),
    "/history": ("query", "number"),
    "/bins": ("query",),
    "/timeline": ("query", "since"),
    "/progress": ("query", "since"),
}
"""What may be said in the address, by path."""


class Desk:
    """Answers for one control."""

    def __init__(self, control: "Control") -> None:
        """Begin with nobody asking."""
        self._control = control
        self._routes: dict[str, dict[str, Callable[[Request], Answer]]] = {
            "GET": {
                "/status": self._status,
                "/history": self._history,
                "/bins": self._bins,
                "/timeline": self._timeline,
                "/metrics": self._metrics,
                "/progress": self._progress,
            },
            "POST": {
                "/plan": self._plan,
                "/migrate": self._migrate,
                "/rescale": self._moving(wishes.Rescale, lambda c, w: c.rescale(w.workers, **w.pace)),
                "/rebalance": self._moving(wishes.Rebalance, lambda c, w: c.rebalance(by=w.by, **w.pace)),
                "/drain": self._moving(wishes.Drain, lambda c, w: c.drain(w.who, **w.pace)),
                "/pause": self._moving(wishes.Wish, lambda c, w: c.pause()),
                "/resume": self._moving(wishes.Wish, lambda c, w: c.resume()),
                "/cancel": self._moving(wishes.Wish, lambda c, w: c.cancel()),
            },
        }

    def __call__(self, request: Request) -> Answer:
        """Do what is asked, or refuse it with one sentence."""
        route = self._routes[request.method].get(request.path)
        if route is None:
            raise self._no_route(request)
        try:
            self._check_options(request)
            return route(request)
        except PlanError as error:
            raise Refusal(HTTPStatus.CONFLICT, str(error)) from error
        except ValueError as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, str(error)) from error
        except MegaphoneError as error:
            raise Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), FAILED) from error

    def _no_route(self, request: Request) -> Refusal:
        other = next((method for method, routes in self._routes.items() if request.path in routes), None)
        if other is not None:
            sentence = f"{request.path} by {request.method}; use {other}"
            return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, sentence, headers={"Allow": other})
        paths = " ".join(path for routes in self._routes.values() for path in routes)
        return Refusal(HTTPStatus.NOT_FOUND, f"nothing at '{request.path}'; choose one of {paths}")

    def _check_options(self, request: Request) -> None:
        """What a path does not know is not left out: who asks may mean something by it."""
        known = OPTIONS.get(request.path, ()) if request.method == "GET" else ()
        for name in request.options.keys() - set(known):
            choice = f"choose {' or '.join(known)}" if known else "it takes none"
            raise ValueError(f"no parameter {shown(name)} of {request.method} {request.path}; {choice}")

    def _status(self, request: Request) -> Answer:
        wanted = request.options.get("query")
        runs = self._control.runs() if wanted is None else [self._run(wanted)]
        statuses = [(run, self._control.status_of(run)) for run in runs]
        return Answer.of([views.of_status(status, _left(run, status.migration)) for run, status in statuses])

    def _history(self, request: Request) -> Answer:
        run = self._run(request.options.get("query"))
        with run.lock:
            history = run.epochs.controller.history
        if (number := _number(request, "number")) is not None:
            history = [migration for migration in history if migration.number == number]
        # One at a time: the lock that opens an epoch is not held while all of them are looked at.
        return Answer.of([_view(run, migration) for migration in history])

    def _bins(self, request: Request) -> Answer:
        run = self._run(request.options.get("query"))
        with run.lock:
            bins = BinsStatus.of(run.epochs)
        return Answer.of(views.of_bins(bins))

    def _timeline(self, request: Request) -> Answer:
        since = _number(request, "since")
        timeline = self._run(request.options.get("query")).timeline
        return Answer.of(timeline.since(-1 if since is None else since))

    def _metrics(self, request: Request) -> Answer:
        return Answer(encode_text(prometheus.exposition(self._control.status())), kind=prometheus.KIND)

    def _progress(self, request: Request) -> Answer:
        since = _number(request, "since")
        lines = self._run(request.options.get("query")).chronicle.since(-1 if since is None else since)
        return Answer(b"".join(encode_json(line) + b"\n" for line in lines), kind=LINES)

    def _plan(self, request: Request) -> Answer:
        wish = wishes.read(request.body, wishes.DryRun)
        what: Any = wish.verb
        if wish.verb == "migrate":
            what = _target(wish.target)
        else:
            unused(f"a {wish.verb}", {"target": wish.target})
        return Answer.of(
            views.of_plan(self._of(wish.query).plan(what, workers=wish.workers, who=wish.who, by=wish.by, **wish.pace))
        )

    def _migrate(self, request: Request) -> Answer:
        wish = wishes.read(request.body, wishes.Migrate)
        control = self._of(wish.query)
        if wish.plan is not None:
            unused("a plan", {"target": wish.target})
            return self._taken(control, control.migrate(Plan.from_object(wish.plan), **wish.pace))
        return self._taken(control, control.migrate(_target(wish.target), **wish.pace))

    def _moving(
        self, kind: type[wishes.W], act: "Callable[[Control, wishes.W], Migration]"
    ) -> Callable[[Request], Answer]:
        def answer(request: Request) -> Answer:
            wish = wishes.read(request.body, kind)
            control = self._of(wish.query)
            return self._taken(control, act(control, wish))

        return answer

    def _taken(self, control: "Control", migration: Migration) -> Answer:
        """Accepted: it happens while the query runs."""
        runs = control.runs()
        left = _left(runs[0], migration) if runs else None
        return Answer.of(views.of_migration(migration, left), HTTPStatus.ACCEPTED)

    def _of(self, wanted: str | None) -> "Control":
        return self._control.narrowed(self._run(wanted).key.query)

    def _run(self, wanted: str | None) -> Run:
        """The query that is meant."""
        name = self._control.name
        runs = [run for run in self._control.runs() if wanted in (None, name) or query_matches(run.query, wanted or "")]
        if not runs:
            sought = "no query" if wanted is None else f"no query '{wanted}'"
            raise Refusal(HTTPStatus.NOT_FOUND, f"{sought} runs on control {name}", NO_QUERY)
        if len(runs) > 1:
            names = " or ".join(run.query.name or run.query.id for run in runs)
            raise Refusal(HTTPStatus.CONFLICT, f"{len(runs)} queries run on control {name}; choose {names}")
        return runs[0]


def _number(request: Request, name: str) -> int | None:
    """A number that is said in the address, if it is."""
    try:
        said = request.options.get(name)
        return None if said is None else whole(numeral(said, f"{name}={{}}"), f"{name}={{}}", -1)
    except PlanError as error:
        raise ValueError(str(error)) from None


def _view(run: Run, migration: Migration | MigrationSummary) -> views.View:
    left = None if isinstance(migration, MigrationSummary) else _left(run, migration)
    return views.of_migration(migration, left)


def _left(run: Run, migration: Migration | None) -> Any:
    if migration is None or migration.ended_s is not None:
        return None
    with run.lock:
        reading, now = run.epochs.meter.reading, run.epochs.now
    # Without the lock: a plan may have a million steps.
    return left(migration, reading, now)


def _target(target: Any) -> Any:
    if target is None:
        raise PlanError("a migration to where? give a target: a worker for every bin, or some bins and their workers")
    return target
