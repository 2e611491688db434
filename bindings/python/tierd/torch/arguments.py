"""Checks arguments of the integrations when they are given, not when they are first used."""

from __future__ import annotations

from ..client import Client


def checked_client(client: object) -> Client:
    """``client``; ``TypeError`` unless it is one."""
    if not isinstance(client, Client):
        raise TypeError(f"client is a {type(client).__name__}: pass what tierd.connect() returned")
    return client
