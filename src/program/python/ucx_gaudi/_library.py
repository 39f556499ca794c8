# SPDX-License-Identifier: BSD-3-Clause
"""The C library behind the package: where it is, its functions, its errors."""

import builtins
import ctypes
import os
import sysconfig
import typing
import warnings

_SONAME = "libuct_hlthunk.so.0"
# Another library than the one beside the package.
_VARIABLE = "PYTHON_UCX_GAUDI_LIBRARY"

IN_PROGRESS = 1
_NO_MEMORY = -4
_NO_ELEM = -12

# Names of enum ucx_gaudi_card_state.
_STATES = ("unknown", "free", "open", "taken", "unusable")


class Error(RuntimeError):
    """A function of the library failed; UCX's log tells more.

    status is UCX's number (ucs_status_t)."""

    def __init__(self, function, status):
        super().__init__(function, status)  # which pickle makes it of again
        self.status = status

    def __str__(self):
        return f"{self.args[0]}: {_describe(self.status)}"


class OutOfMemoryError(Error, MemoryError):
    """The card has not that much memory left."""


class Card(typing.NamedTuple):
    """A card that this process may open."""

    name: str                      # "gaudi0"
    bus_id: str                    # "0000:b3:00.0"
    state: str                     # "free", "open" (here), "taken",
                                   # "unusable" or "unknown"
    numa_node: typing.Optional[int]
    total_memory: int              # bytes; 0: not known
    free_memory: int               # bytes; 0: none, or not known


class _CardAttr(ctypes.Structure):
    _fields_ = [("field_mask", ctypes.c_uint64),
                ("name", ctypes.c_char * 16),
                ("bus_id", ctypes.c_char * 16),
                ("state", ctypes.c_int),
                ("numa_node", ctypes.c_int),
                ("total_memory", ctypes.c_uint64),
                ("free_memory", ctypes.c_uint64)]


class _MemAttr(ctypes.Structure):
    _fields_ = [("field_mask", ctypes.c_uint64),
                ("base", ctypes.c_void_p),
                ("length", ctypes.c_size_t),
                ("card", ctypes.c_char * 16),
                ("imported", ctypes.c_int)]


def _query(structure):
    """A structure that asks for all that it has: the mask has a bit for each
    field behind it. A newer library knows of more, and writes what is asked
    for."""
    return structure(field_mask=(1 << len(structure._fields_) - 1) - 1)


def _find_loaded(name):
    """A library that the process has; None: it has none of this name."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _find_function(name, library):
    """A function of the UCX in this process; None: there is no UCX. Packagers
    give its libraries other names than the usual one. Not by dl_iterate_phdr,
    in which this thread could wait for one that waits for the dynamic linker.
    """
    files = []
    try:
        with builtins.open("/proc/self/maps", errors="surrogateescape") as maps:
            files = [line.rstrip("\n").split(maxsplit=5)[5] for line in maps
                     if ".so" in line]
    except OSError:
        pass
    for file in (*dict.fromkeys(files), library):
        function = getattr(_find_loaded(file), name, None)
        if function is not None:
            return function
    return None


def _candidates():
    named = os.environ.get(_VARIABLE)
    if named:
        yield named
        return
    # <lib>/python3/dist-packages/ucx_gaudi, in the build tree and installed.
    folder = os.path.dirname(os.path.abspath(__file__))
    lib = os.path.normpath(os.path.join(folder, "..", "..", ".."))
    for below in ("", sysconfig.get_config_var("MULTIARCH") or "",
                  os.path.join("..", "lib64")):
        path = os.path.normpath(os.path.join(lib, below, _SONAME))
        if os.path.exists(path):
            yield path
    yield _SONAME


def _load():
    loaded = _find_loaded(_SONAME)  # by `ucx-gaudi run`, or linked
    if loaded is not None and not os.environ.get(_VARIABLE):
        return loaded
    if _find_function("ucp_get_version", "libucp.so.0") is not None:
        warnings.warn(
            "UCX was loaded before ucx_gaudi. What has opened it does not know "
            "Gaudi memory: import ucx_gaudi first, or start the program with "
            "'ucx-gaudi run'", RuntimeWarning, stacklevel=5)  # at the import of the package
    failures = []
    for path in _candidates():
        try:
            # In sight of what is loaded later: it wraps the functions by which
            # UCX is opened, MPI libraries' too.
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            failures.append(str(error))
    raise ImportError(f"{_SONAME} of ucx-gaudi is not to be found "
                      f"({_VARIABLE} can name it): " + "; ".join(failures))


library = _load()


def _describe(status):
    to_text = _find_function("ucs_status_string", "libucs.so.0")
    if to_text is None:
        return f"status {status}"
    to_text.argtypes, to_text.restype = [ctypes.c_int8], ctypes.c_char_p
    return to_text(status).decode()


def _raise_error(name, status):
    if status == _NO_MEMORY:
        raise OutOfMemoryError(name, status)
    if status < 0:
        raise Error(name, status)
    return status


def _declare(name, *types, check=_raise_error):
    """A function of the library, which answers with a status of one byte: one
    that is an error is raised, others are returned."""
    try:
        function = ctypes.CFUNCTYPE(ctypes.c_int8, *types)((name, library))
    except AttributeError as error:
        raise ImportError(f"ucx-gaudi's library is older than this package: "
                          f"{error}") from None
    function.errcheck = lambda status, *_: check(name, status)
    return function


_size, _text, _pointer = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p
_card_query = _declare("ucx_gaudi_card_query", ctypes.c_uint,
                       ctypes.POINTER(_CardAttr))
_open = _declare("ucx_gaudi_open", _text)
_close = _declare("ucx_gaudi_close")
_mem_alloc = _declare("ucx_gaudi_mem_alloc", _size, _text,
                      ctypes.POINTER(_pointer))
# For finalizers, which have nobody to tell.
mem_free = _declare("ucx_gaudi_mem_free", _pointer, check=lambda *_: None)
# copy(target, source, size): addresses of host or device memory.
copy = _declare("ucx_gaudi_mem_copy", _pointer, _pointer, _size)
# fill(address, size, pattern, size of the pattern)
fill = _declare("ucx_gaudi_mem_fill", _pointer, _size, _text, _size)
_mem_query = _declare("ucx_gaudi_mem_query", _pointer, _size,
                      ctypes.POINTER(_MemAttr))
_stream_create = _declare("ucx_gaudi_stream_create", ctypes.POINTER(_pointer))
stream_destroy = _declare("ucx_gaudi_stream_destroy", _pointer)
stream_synchronize = _declare("ucx_gaudi_stream_synchronize", _pointer)
stream_query = _declare("ucx_gaudi_stream_query", _pointer)
stream_wait_event = _declare("ucx_gaudi_stream_wait_event", _pointer, _pointer)
# copy_async(target, source, size, stream)
copy_async = _declare("ucx_gaudi_mem_copy_async", _pointer, _pointer, _size,
                      _pointer)
_event_create = _declare("ucx_gaudi_event_create", ctypes.POINTER(_pointer))
event_destroy = _declare("ucx_gaudi_event_destroy", _pointer)
# event_record(event, stream)
event_record = _declare("ucx_gaudi_event_record", _pointer, _pointer)
event_query = _declare("ucx_gaudi_event_query", _pointer)
event_synchronize = _declare("ucx_gaudi_event_synchronize", _pointer)
host_register = _declare("ucx_gaudi_host_register", _pointer, _size)
host_unregister = _declare("ucx_gaudi_host_unregister", _pointer)
HANDLE_BYTES = 64
_ipc_export = _declare("ucx_gaudi_ipc_export", _pointer, _size,
                       ctypes.c_char * HANDLE_BYTES)
ipc_withdraw = _declare("ucx_gaudi_ipc_withdraw", _pointer, _size)
_ipc_open = _declare("ucx_gaudi_ipc_open", ctypes.c_char * HANDLE_BYTES,
                     ctypes.POINTER(_pointer), ctypes.POINTER(_size))
# For finalizers.
ipc_close = _declare("ucx_gaudi_ipc_close", _pointer, check=lambda *_: None)


def _card_name(card):
    """A card as the library wants it: by name, number or bus id."""
    if isinstance(card, Card):
        card = card.name
    if card is None:
        return None
    if isinstance(card, bool) or not isinstance(card, (int, str)):
        raise TypeError(f"a card is a name, a number or None, not {card!r}")
    return os.fsencode(str(card))


def allocate(size, card):
    """The address of new device memory."""
    address = _pointer()
    _mem_alloc(size, _card_name(card), ctypes.byref(address))
    return address.value


def card_of(address, size):
    """The name of the card that a range of device memory is on."""
    attr = _query(_MemAttr)
    _mem_query(address, size, ctypes.byref(attr))
    return attr.card.decode()


def create_stream():
    """A new stream."""
    stream = _pointer()
    _stream_create(ctypes.byref(stream))
    return stream.value


def create_event():
    """A new event."""
    event = _pointer()
    _event_create(ctypes.byref(event))
    return event.value


def ipc_export(address, size):
    """The handle of memory that is exported."""
    handle = (ctypes.c_char * HANDLE_BYTES)()
    _ipc_export(address, size, handle)
    return handle.raw


def ipc_open(handle):
    """(address, size) of what a handle stands for."""
    address, size = _pointer(), _size()
    _ipc_open((ctypes.c_char * HANDLE_BYTES)(*handle), ctypes.byref(address),
              ctypes.byref(size))
    return address.value, size.value


def cards():
    """The cards that this process may open, or has open. Opens none."""
    found = []
    while True:
        attr = _query(_CardAttr)
        try:
            _card_query(len(found), ctypes.byref(attr))
        except Error as error:
            if error.status == _NO_ELEM:
                return found
            raise
        found.append(Card(attr.name.decode(), attr.bus_id.decode(),
                          _STATES[attr.state],
                          attr.numa_node if attr.numa_node >= 0 else None,
                          attr.total_memory, attr.free_memory))


def open(card=None):  # pylint: disable=redefined-builtin
    """Open a card now; without a name as UCX_GAUDI_DEVICES says."""
    _open(_card_name(card))


def close():
    """Let go of the cards, when all buffers are freed."""
    _close()
