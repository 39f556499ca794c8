# SPDX-License-Identifier: BSD-3-Clause
"""Buffers of device memory."""

import contextlib
import ctypes
import operator
import os
import threading
import weakref

from ucx_gaudi import _library


class _View(ctypes.Structure):
    """Py_buffer, which the stable ABI has from Python 3.11 on, and which never
    changed before."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p),
                ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int)(
        ("PyObject_GetBuffer", ctypes.pythonapi))
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_View))(
    ("PyBuffer_Release", ctypes.pythonapi))
_SIMPLE, _WRITABLE = 0, 1


# ctypes cuts off what is more.
_LAST_ADDRESS = (1 << 64) - 1
_MOST_BYTES = (1 << 63) - 1


def _checked_size(size):
    size = operator.index(size)
    if not 0 < size <= _MOST_BYTES:
        raise ValueError(f"a buffer of {size} bytes cannot be")
    return size


def end_in(process, end, what):
    """A forked child has nothing of its parent's."""
    if os.getpid() == process:
        end(what)


class _Memory:
    """An allocation, or memory of somebody else's."""

    def __init__(self, address, size, card, owner=None, free=None):
        self.address = address
        self.size = size
        self.card = card
        self.owner = owner
        self.process = os.getpid()
        self.is_freed = False
        self.uses = 0
        self.lock = threading.RLock()  # a collection can come back
        self.finalizer = None
        if free is not None:
            self.finalizer = weakref.finalize(self, end_in, self.process, free,
                                              address)
            self.finalizer.atexit = False

    def is_inherited(self):
        """Whether a forked child asks, in which a thread that is not there any
        more may hold the lock for ever."""
        return self.process != os.getpid()

    def check(self):
        if self.is_freed:
            raise ValueError("the buffer is freed")
        if self.is_inherited():
            raise ValueError("the buffer is of the process that this one was "
                             "forked from")

    @contextlib.contextmanager
    def in_use(self):
        """Keep it from being freed. Its uses end with the `with`, not with a
        frame: the traceback of an error keeps that."""
        self.check()
        with self.lock:
            self.check()
            self.uses += 1
        try:
            yield
        finally:
            if not self.is_inherited():
                with self.lock:
                    self.uses -= 1

    def free(self):
        with self.lock:
            if self.is_freed:
                return
            if self.uses > 0:
                raise BufferError("the buffer is in use by a copy")
            self.is_freed = True
        self.owner = None
        if self.finalizer is not None:
            self.finalizer()


@contextlib.contextmanager
def bytes_of(other, writable):
    """(address, size) of a buffer, or of an object with Python's buffer
    protocol, which cannot go or move meanwhile."""
    if isinstance(other, Buffer):
        with other._memory.in_use():
            yield other.pointer, other.size
        return
    view = _View()
    _get_buffer(other, ctypes.byref(view), _WRITABLE if writable else _SIMPLE)
    try:
        yield view.buf, view.len
    finally:
        _release_buffer(ctypes.byref(view))


class Buffer:
    """Bytes of device memory, which the CPU cannot touch.

    Buffer(size, card=None) allocates them, on a card ("gaudi1", 1, a bus id or
    a Card) or the first one that is open. They are freed with free(), at the end
    of a `with`, or with the last reference. A slice, as in buffer[10:20], is a
    buffer of the same memory and keeps it.
    """

    __slots__ = ("_memory", "_offset", "_size", "__weakref__")

    def __init__(self, size, card=None):
        size = _checked_size(size)
        address = _library.allocate(size, card)
        try:
            name = _library.card_of(address, size)
            memory = _Memory(address, size, name, free=_library.mem_free)
        except BaseException:
            _library.mem_free(address)
            raise
        self._set(memory, 0, size)

    def _set(self, memory, offset, size):
        self._memory = memory
        self._offset = offset
        self._size = size

    @classmethod
    def _of(cls, memory, offset, size):
        made = cls.__new__(cls)
        made._set(memory, offset, size)
        return made

    @classmethod
    def wrap(cls, pointer, size, owner=None):
        """A buffer of device memory that somebody else has allocated, a
        framework for instance. It is never freed from here; `owner` is kept as
        long as the buffer, or until its free()."""
        pointer, size = operator.index(pointer), _checked_size(size)
        if not 0 < pointer <= _LAST_ADDRESS:
            raise ValueError(f"{pointer:#x} is no address")
        _library.open()
        return cls._of(_Memory(pointer, size, _library.card_of(pointer, size),
                               owner=owner), 0, size)

    @classmethod
    def open_handle(cls, handle):
        """A buffer of memory that another process of the node has exported, by
        the 64 bytes of its handle. Copies of this package reach it, UCX and MPI
        do not. free() closes it."""
        handle = bytes(handle)
        if len(handle) != _library.HANDLE_BYTES:
            raise ValueError(f"a handle has {_library.HANDLE_BYTES} bytes")
        address, size = _library.ipc_open(handle)
        return cls._of(_Memory(address, size, "another process",
                               free=_library.ipc_close), 0, size)

    @property
    def pointer(self):
        """Device address of the first byte, to be given to UCX or MPI."""
        self._memory.check()
        return self._memory.address + self._offset

    @property
    def size(self):
        """Bytes."""
        return self._size

    nbytes = size

    @property
    def card(self):
        """Name of the card, "gaudi0" for instance."""
        return self._memory.card

    def __len__(self):
        return self._size

    def __repr__(self):
        if self._memory.is_freed:
            return f"<ucx_gaudi.Buffer of {self._size} bytes, freed>"
        return (f"<ucx_gaudi.Buffer of {self._size} bytes at "
                f"{self._memory.address + self._offset:#x} on {self.card}>")

    def __reduce__(self):
        raise TypeError("device memory is of one process and is not copied with "
                        "its buffer: tobytes() gives its bytes, buffer[:] "
                        "another buffer of it")

    def __getitem__(self, part):
        if not isinstance(part, slice):
            raise TypeError("device memory is read by tobytes() or copy_to(); "
                            "buffer[a:b] is a part of it")
        start, stop, step = part.indices(self._size)
        if step != 1 or stop <= start:
            raise ValueError("a part of a buffer is one or more bytes without "
                             "gaps")
        self._memory.check()
        return self._of(self._memory, self._offset + start, stop - start)

    def free(self):
        """Give the memory back. Buffers of parts of it are freed, too. Does
        nothing the second time.

        Raises BufferError while a stream or another thread copies it. The end
        of a `with` does so, too, unless an error is what ends it: the memory is
        then freed with its last user."""
        if not self._memory.is_inherited():
            self._memory.free()

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        try:
            self.free()
        except BufferError:
            # The error that ends the `with` is what the caller has to see. The
            # memory goes with its last user.
            if error is None:
                raise

    def _copy(self, other, to_other, offset):
        """Copy all bytes of another buffer, or of host memory."""
        with bytes_of(other, to_other) as (address, size), \
                self._memory.in_use():
            offset = operator.index(offset)
            if offset < 0 or size > self._size - offset:
                raise ValueError(f"{size} bytes at {offset} are not in a "
                                 f"buffer of {self._size}")
            own = self.pointer + offset
            if to_other:
                _library.copy(address, own, size)
            else:
                _library.copy(own, address, size)
        return self

    def copy_from(self, source, offset=0):
        """Copy all of `source` here: bytes, an array without gaps (anything
        with Python's buffer protocol), or another buffer. Returns self."""
        return self._copy(source, False, offset)

    def copy_to(self, target, offset=0):
        """Copy bytes from here to all of `target`: a bytearray, a writable
        array without gaps, or another buffer. Returns self."""
        return self._copy(target, True, offset)

    def fill(self, value):
        """Fill it with a byte (an int), or a pattern of 1, 2, 4, 8 or 16 bytes.
        Returns self."""
        if not isinstance(value, int):
            pattern = bytes(memoryview(value))
        elif 0 <= value <= 255:
            pattern = bytes([value])
        else:
            raise ValueError(f"{value} is no byte")
        if len(pattern) not in (1, 2, 4, 8, 16) or self._size % len(pattern):
            raise ValueError("a pattern has 1, 2, 4, 8 or 16 bytes, and the "
                             "buffer a multiple of that")
        with self._memory.in_use():
            _library.fill(self.pointer, self._size, pattern, len(pattern))
        return self

    def tobytes(self):
        """Its contents."""
        host = bytearray(self._size)
        self.copy_to(host)
        return bytes(host)
