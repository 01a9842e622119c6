"""All that one router holds of one version: the calls that wait, and the links to the replicas that can take them."""

from __future__ import annotations

import math
from bisect import insort
from collections import OrderedDict

from functions.errors import DespinaError
from functions.names import Ref
from workers.fleet.allowance import Allowance
from workers.fleet.call import Call
from workers.fleet.links import Link
from workers.fleet.terms import Terms


class Pool:
    """The queue of one version. Calls leave it in the order in which they arrived, those that a replica gave back first."""

    __slots__ = (
        "_allowance",
        "_queue",
        "_returned",
        "barred",
        "barred_until",
        "calls",
        "held",
        "limbo",
        "linked",
        "links",
        "ref",
        "renew_at",
        "replicas",
        "sampled",
        "samples",
        "series",
        "terms",
        "trouble",
        "used",
        "waiting",
    )

    def __init__(self, ref: Ref) -> None:
        self.ref = ref
        self.terms: Terms | None = None
        """None until a call needs them."""
        self.links: list[Link] = []
        """Those that take calls: greeted, and not draining."""
        self.linked: list[Link] = []
        """Those that are greeted, draining ones included."""
        self.replicas = 0
        """Replicas listed for this version."""
        self.waiting = 0
        """Calls in the queue."""
        self.limbo = 0
        """Calls that lay with a replica that is lost, until its node says which of them had started."""
        self.calls = 0
        """Calls since this pool was made."""
        self.used = -math.inf
        """Loop time of the last call."""
        self.held = False
        """Whether a lease of ours may still live at a node."""
        self.renew_at = 0.0
        self.barred: DespinaError | None = None
        """Why the version cannot start, until ``barred_until``."""
        self.barred_until = 0.0
        self.trouble: DespinaError | None = None
        """The last reason a node gave for not starting one more replica."""
        self.sampled = 0.0
        self.samples = 0
        """Sum and number of samples of queued + running since the last observation."""
        self.series = -1
        """Index of the pending gauge in the page."""
        self._allowance: Allowance | None = None
        self._queue: OrderedDict[Call, None] = OrderedDict()
        self._returned: list[Call] = []

    def pick(self) -> Link | None:
        """The link with credit and the fewest calls on it; the first of equals, so that little load stays on one warm replica."""
        best: Link | None = None
        fewest = 0
        for link in self.links:
            lying = len(link.outstanding)
            if lying < link.credit and (best is None or lying < fewest):
                best, fewest = link, lying
        return best

    def allowed(self, rate: float, now: float) -> bool:
        """Whether one more call may come in at ``rate`` calls a second; it is counted if so."""
        if self._allowance is None:
            self._allowance = Allowance(rate, now)
        return self._allowance.take(now)

    def put(self, call: Call) -> None:
        """At the end of the queue."""
        self._queue[call] = None
        self.waiting += 1

    def put_back(self, call: Call) -> None:
        """At the front, in order of arrival among those put back."""
        insort(self._returned, call, key=_latest_first)
        self.waiting += 1

    def take(self) -> Call:
        """The next call. There must be one (``waiting``)."""
        self.waiting -= 1
        return self._returned.pop() if self._returned else self._queue.popitem(last=False)[0]

    def drop(self, call: Call) -> None:
        """Take a waiting call out of the middle."""
        if call in self._queue:
            del self._queue[call]
        else:
            self._returned.remove(call)
        self.waiting -= 1

    def running(self) -> int:
        """Calls that lie with replicas, those whose caller has gone included, and those in limbo."""
        return sum(len(link.outstanding) for link in self.linked) + self.limbo


def _latest_first(call: Call) -> int:
    return -call.number
