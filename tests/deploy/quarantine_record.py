"""The record of quarantined places that a daemon leaves in its index (proto/quarantine_record.h), written as if its run
had found them: each costs two failed writes, and a device that is failing has 4096.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import pathlib
import struct

PLACES_MAX = 4096
_MAGIC, _VERSION = b"TIERQUAR", 1
_NOSUBDIR, _NOLOCK, _CREATE = 0x4000, 0x400000, 0x40000


class _Value(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("data", ctypes.c_char_p))


def crc32c(content: bytes) -> int:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in content:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def record(places: int) -> bytes:
    """Every second page of the data area, so that no two are one place."""
    runs = b"".join(struct.pack("<QII", 2 * number, 1, 0) for number in range(places))
    header = _MAGIC + struct.pack("<IIII", _VERSION, 0, places, 0)
    return header[:12] + struct.pack("<I", crc32c(header + runs)) + header[16:] + runs


def library() -> ctypes.CDLL | None:
    """LMDB, which building needs anyhow."""
    name = ctypes.util.find_library("lmdb")
    return ctypes.CDLL(name) if name else None


def write(index: pathlib.Path, device_uuid: str, places: int = PLACES_MAX) -> None:
    """Into the index of a daemon that has stopped."""
    lmdb = library()
    assert lmdb is not None
    environment, transaction, table = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()

    def call(name: str, *arguments: object) -> None:
        status = getattr(lmdb, name)(*arguments)
        assert status == 0, f"{name}: {status}"

    call("mdb_env_create", ctypes.byref(environment))
    try:
        call("mdb_env_set_maxdbs", environment, 8)
        call("mdb_env_set_mapsize", environment, ctypes.c_size_t(index.stat().st_size))
        call("mdb_env_open", environment, str(index).encode(), _NOSUBDIR | _NOLOCK, 0o600)
        call("mdb_txn_begin", environment, None, 0, ctypes.byref(transaction))
        call("mdb_dbi_open", transaction, b"quarantine", _CREATE, ctypes.byref(table))
        key, content = device_uuid.encode(), record(places)
        pair = _Value(len(key), key), _Value(len(content), content)
        call("mdb_put", transaction, table, ctypes.byref(pair[0]), ctypes.byref(pair[1]), 0)
        call("mdb_txn_commit", transaction)
    finally:
        lmdb.mdb_env_close(environment)
