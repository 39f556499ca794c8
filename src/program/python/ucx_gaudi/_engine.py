# SPDX-License-Identifier: BSD-3-Clause
"""What an engine for transfers needs: streams, events, memory for others."""

import contextlib
import os
import weakref

from ucx_gaudi import _library
from ucx_gaudi._buffer import bytes_of, end_in


class _Owner:
    """Ends what it has, once: with `with`, close(), or its last reference."""

    def _own(self, end, what):
        self._what = what
        self._finalizer = weakref.finalize(self, end_in, os.getpid(), end, what)
        self._finalizer.atexit = False

    def _get(self):
        if not self._finalizer.alive:
            raise ValueError("it is closed")
        return self._what

    def close(self):
        """End it. Does nothing the second time."""
        self._finalizer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Event(_Owner):
    """A place in a stream, by Stream.record()."""

    def __init__(self):
        self._own(_library.event_destroy, _library.create_event())

    def query(self):
        """Whether all is done that was before it in its stream. Raises what
        failed before it."""
        return _library.event_query(self._get()) != _library.IN_PROGRESS

    def synchronize(self):
        """The same, and wait for it."""
        _library.event_synchronize(self._get())


class Stream(_Owner):
    """Makes copies in their order while the program does something else: of
    buffers, and of host memory with a Registration. With other host memory
    copy() returns when the copy is made.

    It keeps what it copies, until synchronize() or close() has waited for it or
    query() has seen that it is done."""

    def __init__(self):
        self._held = contextlib.ExitStack()
        self._own(_library.stream_destroy, _library.create_stream())

    def copy(self, target, source):
        """Copy all of `source` to the beginning of `target`: buffers, or
        anything with Python's buffer protocol. Returns self."""
        stream = self._get()
        with contextlib.ExitStack() as held:
            to, room = held.enter_context(bytes_of(target, True))
            address, size = held.enter_context(bytes_of(source, False))
            if size > room:
                raise ValueError(f"{size} bytes are not in {room}")
            _library.copy_async(to, address, size, stream)
            self._held.push(held.pop_all())
        return self

    def record(self, event=None):
        """An event that stands for this place."""
        event = Event() if event is None else event
        _library.event_record(event._get(), self._get())
        return event

    def wait(self, event):
        """Have what comes now wait for an event. Returns self."""
        _library.stream_wait_event(self._get(), event._get())
        return self

    def query(self):
        """Whether all is done. Raises what failed."""
        if _library.stream_query(self._get()) == _library.IN_PROGRESS:
            return False
        self._held.close()
        return True

    def synchronize(self):
        """Wait for all of it. Raises what failed, once."""
        try:
            _library.stream_synchronize(self._get())
        finally:
            self._held.close()

    def close(self):
        try:
            super().close()
        finally:
            self._held.close()


class Export(_Owner):
    """Memory that other processes of the node can open by its handle, 64 bytes,
    until close(): a buffer, or host memory of anything writable with Python's
    buffer protocol. It keeps the memory."""

    def __init__(self, memory):
        with contextlib.ExitStack() as held:
            address, size = held.enter_context(bytes_of(memory, True))
            self._handle = _library.ipc_export(address, size)
            self._held = held.pop_all()
        self._own(_withdraw, (address, size, self._held))

    @property
    def handle(self):
        """What Buffer.open_handle() of another process takes."""
        self._get()
        return self._handle


class Registration(_Owner):
    """Host memory that cards reach directly, until close(). It keeps the
    memory."""

    def __init__(self, memory):
        with contextlib.ExitStack() as held:
            address, size = held.enter_context(bytes_of(memory, True))
            _library.host_register(address, size)
            self._held = held.pop_all()
        self._own(_unregister, (address, self._held))


def _withdraw(what):
    address, size, held = what
    with held:
        _library.ipc_withdraw(address, size)


def _unregister(what):
    address, held = what
    with held:
        _library.host_unregister(address)
