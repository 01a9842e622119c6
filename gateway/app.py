"""Everything of the HTTP interface but infer: FastAPI with the routes of ``gateway/routes``, and errors in one shape."""

from __future__ import annotations

import logging
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from functions.errors import DespinaError, InternalError, InvalidRequest, NotFound, Unsupported
from gateway.answers import error_response, fault_text
from gateway.parts import Parts
from gateway.routes import blobs, functions, health, models, releases, scale, tags, versions

log = logging.getLogger(__name__)


def create(parts: Parts) -> FastAPI:
    app = FastAPI(title="Despina", docs_url=None, redoc_url=None, openapi_url="/v1/openapi.json", redirect_slashes=False)
    app.state.parts = parts
    for noun in (health, models, functions, versions, tags, releases, scale, blobs):
        app.include_router(noun.router)
    app.add_exception_handler(DespinaError, _despina_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)
    return app


async def _despina_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DespinaError)
    if isinstance(error, InternalError):
        log.error("request_failed method=%s path=%s", request.method, request.url.path, exc_info=error)
    return error_response(error)


async def _http_error(_request: Request, error: Exception) -> Response:
    """What the framework itself refuses: no such path (404), no such method (405)."""
    assert isinstance(error, HTTPException)
    kind = NotFound if error.status_code == 404 else Unsupported if error.status_code == 405 else InvalidRequest
    return error_response(kind(HTTPStatus(error.status_code).phrase), error.status_code, error.headers)


async def _validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return error_response(InvalidRequest("; ".join(fault_text(fault) for fault in error.errors())))


async def _gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)  # Nobody reads it: the client left while its body was being read.


async def _unexpected(request: Request, error: Exception) -> Response:
    """Answers what none of ours foresaw; the framework raises it again, and the server logs it with its trace."""
    log.error("request_failed method=%s path=%s", request.method, request.url.path)
    return error_response(InternalError(repr(error)))
