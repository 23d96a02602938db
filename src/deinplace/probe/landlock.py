"""Asks the Linux kernel to refuse writes outside some folders, and TCP, to this process and all its children.

Source: linux/landlock.h; the numbers are part of the kernel's stable interface.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls, the same number on every architecture."""
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38
_WRITES = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))
"""write_file, remove_dir, remove_file, make_{char,dir,reg,sock,fifo,block,sym}."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_FILE = (1 << 1) | _TRUNCATE
_TCP = 3
"""bind, connect."""
_SIGNALS = 2


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def restrict(writable: Iterable[str]) -> None:
    """Allow writes below `writable` only, no TCP, and no signals to processes outside.

    Raises:
        OSError: the kernel does not know Landlock, or has it switched off.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(*words: object) -> int:
        result = int(libc.syscall(*words))
        if result < 0:
            raise OSError(ctypes.get_errno(), "landlock")
        return result

    version = call(ctypes.c_long(_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    rights = _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _Ruleset(rights, _TCP if version >= 4 else 0, _SIGNALS if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = call(ctypes.c_long(_CREATE), ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path in writable:
            access = rights if os.path.isdir(path) else rights & _FILE
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = _Beneath(access, descriptor)
                call(ctypes.c_long(_ADD), ruleset, _PATH_BENEATH, ctypes.byref(rule), ctypes.c_uint32(0))
            finally:
                os.close(descriptor)
        if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        call(ctypes.c_long(_RESTRICT), ruleset, ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
