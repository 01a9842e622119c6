"""The table of object stores: from the scheme of a URL to the class that speaks to it."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import urlsplit

from functions.errors import InvalidRequest
from registry.stores.base import Store

STORES = {
    "file": "registry.stores.files:FileStore",
}
"""Scheme → ``module:Class``, as text, so that a store's client library is imported only where that store is used."""


def open_store(url: str) -> Store:
    """The store that ``url`` names: ``file:///var/lib/despina/store``. Raises InvalidRequest for a URL no store understands,
    StoreUnreachable when the store cannot be opened."""
    scheme = urlsplit(url).scheme
    if scheme not in STORES:
        raise InvalidRequest(f"store {url!r} begins with none of {', '.join(f'{known}://' for known in STORES)}")
    module, _, name = STORES[scheme].partition(":")
    store: Store = getattr(import_module(module), name)(url)
    return store
