"""The v2 view of functions that needs no replica: metadata, configuration, readiness; and the statistics that nodes keep."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Response

from functions.config.spec import ModelConfig, TensorSpec
from functions.errors import InvalidRequest, NotFound
from functions.records import VersionRecord
from gateway.answers import error_response
from gateway.parts import Parts, PartsOf
from workers.node.statistics import nothing_yet

router = APIRouter()


@router.get("/v2/models/stats")
async def all_statistics(parts: PartsOf) -> dict[str, Any]:
    return {"model_stats": await parts.nodes.statistics()}


@router.get("/v2/models/{name}")
@router.get("/v2/models/{name}/versions/{selector}")
async def metadata(parts: PartsOf, name: str, selector: str | None = None) -> dict[str, Any]:
    record = await _record(parts, name, selector)
    config = ModelConfig.of(record.config)
    versions = parts.registry.catalog.versions(name) if selector is None else [record.version]
    return {
        "name": name,
        "versions": [str(version) for version in versions],
        "platform": config.platform or config.backend,
        "inputs": [_tensor(tensor) for tensor in config.inputs],
        "outputs": [_tensor(tensor) for tensor in config.outputs],
    }


@router.get("/v2/models/{name}/config")
@router.get("/v2/models/{name}/versions/{selector}/config")
async def config(parts: PartsOf, name: str, selector: str | None = None) -> dict[str, Any]:
    return dict((await _record(parts, name, selector)).config)


@router.get("/v2/models/{name}/ready")
@router.get("/v2/models/{name}/versions/{selector}/ready")
async def ready(parts: PartsOf, name: str, selector: str | None = None) -> Response:
    """200 where a call would be served: at once, or after a start that nothing speaks against."""
    try:
        failure = parts.nodes.failure(parts.registry.catalog.reached(name, selector))
    except NotFound as error:
        failure = error
    if failure is not None:
        return error_response(type(failure)("Model version not ready"), 400)
    return Response(status_code=200, media_type="application/json")


@router.get("/v2/models/{name}/stats")
@router.get("/v2/models/{name}/versions/{selector}/stats")
async def statistics(parts: PartsOf, name: str, selector: str | None = None) -> dict[str, Any]:
    """Of the versions that have run somewhere; the one that is asked for, or ``live``, is there in any case."""
    try:
        asked = parts.registry.catalog.reached(name, selector)
    except NotFound:
        known = name in parts.registry.catalog.functions()
        text = f"requested model version is not available for model '{name}'" if known else f"requested model '{name}' is not available"
        raise InvalidRequest(text) from None
    entries = await parts.nodes.statistics(name, None if selector is None else asked.version)
    if not any(entry["version"] == str(asked.version) for entry in entries):
        entries.append(nothing_yet(*asked))
    return {"model_stats": entries}


async def _record(parts: Parts, name: str, selector: str | None) -> VersionRecord:
    ref = parts.registry.catalog.reached(name, selector)
    known = parts.registry.catalog.peek(*ref)
    return known if known is not None else await asyncio.to_thread(parts.registry.catalog.record, *ref)


def _tensor(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.full_shape)}
