"""Every error a caller, an operator or an author can meet, ordered by who must act.

    DespinaError
    ├── CallerError            the caller must change the request
    │   ├── InvalidRequest         invalid_request      malformed or contradicting request
    │   ├── NotFound               not_found            no such function, version, tag, path or blob
    │   ├── Conflict               conflict             the state does not allow it (tagged, locked, held)
    │   ├── PreconditionFailed     precondition_failed  If-Match named another epoch
    │   ├── TooLarge               too_large            a body, header or archive over its limit
    │   ├── Unauthorized           unauthorized         no or a wrong credential
    │   ├── Forbidden              forbidden            a credential that does not allow it, a foreign Origin
    │   ├── Unsupported            unsupported          a protocol feature that does not apply here
    │   └── Cancelled              cancelled            the caller went away
    ├── CapacityError          the operator must act, or the caller wait
    │   ├── QueueFull              queue_full           the function's queue is at its limit
    │   ├── RateLimited            rate_limited         more calls a second than its author or operator allows
    │   ├── DeadlineExceeded       deadline_exceeded    the call ran out of time
    │   ├── NoCapacity             no_capacity          no node can hold one more replica
    │   ├── StoreUnreachable       store_unreachable    the object store did not answer
    │   ├── BoardUnreachable       board_unreachable    the board did not answer
    │   ├── NodeUnreachable        node_unreachable     no node answers
    │   └── Draining               draining             this process is shutting down
    ├── AuthorError            the author of the function must act
    │   ├── BundleRefused          bundle_refused       a publish check failed; names field and fix
    │   ├── StartFailed            start_failed         loading or warm-up failed
    │   ├── ModelFailed            model_failed         execute raised or answered an error, by Triton's codes:
    │   │   ├── ModelUnknown           model_unknown
    │   │   ├── ModelNotFound          model_not_found
    │   │   ├── ModelInvalidArgument   model_invalid_argument
    │   │   ├── ModelUnavailable       model_unavailable
    │   │   ├── ModelUnsupported       model_unsupported
    │   │   ├── ModelAlreadyExists     model_already_exists
    │   │   └── ModelCancelled         model_cancelled
    │   ├── ReplicaDied            replica_died         the process died while it ran this call's batch
    │   └── AuthorHung             author_hung          the batch ran longer than limits.kill_s and was killed
    └── InternalError          we must act
        └── ProtocolError          protocol_error       a peer process broke the frame format

Each class has a stable ``code`` (HTTP header ``Despina-Error``), a stable ``wire`` number (frames carry only that and a
message) and says whether the same request may succeed later (``retry``). Core code knows no HTTP: one table in
``gateway/statuses.py`` maps codes to statuses, and a test proves that none is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar


class DespinaError(Exception):
    """The root. ``message`` is what the one who must act reads; it holds the facts (name, version, field, limit, value)."""

    code: ClassVar[str] = "error"
    wire: ClassVar[int] = 0
    retry: ClassVar[bool] = False
    retry_after_s: float = 0.0
    """Seconds after which trying again may help, where somebody knows; 0 where nobody does."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class CallerError(DespinaError):
    """The caller must change the request."""

    code = "caller_error"
    wire = 100


class InvalidRequest(CallerError):
    code = "invalid_request"
    wire = 101


class NotFound(CallerError):
    code = "not_found"
    wire = 102


class Conflict(CallerError):
    code = "conflict"
    wire = 103


class PreconditionFailed(CallerError):
    code = "precondition_failed"
    wire = 104


class TooLarge(CallerError):
    code = "too_large"
    wire = 105


class Unauthorized(CallerError):
    code = "unauthorized"
    wire = 106


class Forbidden(CallerError):
    code = "forbidden"
    wire = 107


class Unsupported(CallerError):
    code = "unsupported"
    wire = 108


class Cancelled(CallerError):
    code = "cancelled"
    wire = 109


class CapacityError(DespinaError):
    """The operator must act, or the caller wait and try again."""

    code = "capacity_error"
    wire = 200
    retry = True


class QueueFull(CapacityError):
    code = "queue_full"
    wire = 201


class RateLimited(CapacityError):
    code = "rate_limited"
    wire = 209


class DeadlineExceeded(CapacityError):
    code = "deadline_exceeded"
    wire = 202


class NoCapacity(CapacityError):
    code = "no_capacity"
    wire = 204


class StoreUnreachable(CapacityError):
    code = "store_unreachable"
    wire = 205


class BoardUnreachable(CapacityError):
    code = "board_unreachable"
    wire = 206


class NodeUnreachable(CapacityError):
    code = "node_unreachable"
    wire = 207


class Draining(CapacityError):
    code = "draining"
    wire = 208


class AuthorError(DespinaError):
    """The author of the function must act."""

    code = "author_error"
    wire = 300


class BundleRefused(AuthorError):
    """A publish check failed. ``field`` is a path into the bundle (``config.pbtxt: input[0].dims``, ``1/model.py:12``),
    ``fix`` says what to write instead."""

    code = "bundle_refused"
    wire = 301

    def __init__(self, message: str, *, field: str = "", fix: str = "") -> None:
        text = f"{field}: {message}" if field else message
        super().__init__(f"{text}; {fix}" if fix else text)
        self.reason, self.field, self.fix = message, field, fix


class StartFailed(AuthorError):
    code = "start_failed"
    wire = 302


class ModelFailed(AuthorError):
    code = "model_failed"
    wire = 310


class ModelUnknown(ModelFailed):
    code = "model_unknown"
    wire = 311


class ModelNotFound(ModelFailed):
    code = "model_not_found"
    wire = 312


class ModelInvalidArgument(ModelFailed):
    code = "model_invalid_argument"
    wire = 313


class ModelUnavailable(ModelFailed):
    code = "model_unavailable"
    wire = 314
    retry = True


class ModelUnsupported(ModelFailed):
    code = "model_unsupported"
    wire = 315


class ModelAlreadyExists(ModelFailed):
    code = "model_already_exists"
    wire = 316


class ModelCancelled(ModelFailed):
    code = "model_cancelled"
    wire = 317


class ReplicaDied(AuthorError):
    code = "replica_died"
    wire = 320
    retry = True


class AuthorHung(AuthorError):
    code = "author_hung"
    wire = 321


class InternalError(DespinaError):
    """We must act: it is logged with its trace, and the caller sees no more than that it happened."""

    code = "internal_error"
    wire = 900


class ProtocolError(InternalError):
    code = "protocol_error"
    wire = 901


def tree(root: type[DespinaError] = DespinaError) -> Iterator[type[DespinaError]]:
    """Every class of the tree, the root first, parents before children."""
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


def from_wire(wire: int, message: str) -> DespinaError:
    """The error a frame carried. An unknown number, from a peer that broke the table, becomes a ProtocolError."""
    kind = _BY_WIRE.get(wire)
    if kind is None:
        return ProtocolError(f"a peer sent the unknown error number {wire}: {message}")
    return kind(message)


_BY_WIRE: dict[int, type[DespinaError]] = {kind.wire: kind for kind in tree()}
