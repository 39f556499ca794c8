#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Device memory as DLPack's tensors.

usage: test_dlpack.py ROOT BUILD_DIRECTORY [unittest's arguments]
"""

import ctypes
import gc
import threading

import common
import numpy
import ucx_gaudi
from ucx_gaudi import Buffer

EXTENSION_DEVICE = 12
IS_COPIED = 2


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("dimensions", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p),
                ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def prototype(result, *types):
    return ctypes.PYFUNCTYPE(result, *types)


get_pointer = prototype(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
set_name = prototype(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi))
USED = b"used_dltensor"


def take(capsule, name=b"dltensor", form=Managed):
    """What a consumer does: the tensor is its own from then on."""
    address = get_pointer(capsule, name)
    set_name(capsule, USED)
    return address, ctypes.cast(address, ctypes.POINTER(form)).contents


class Capsules(common.LoggedTest):
    def setUp(self):
        super().setUp()
        self.buffer = Buffer(1000, card=1)

    def tearDown(self):
        self.buffer.free()  # nothing uses it
        super().tearDown()

    def test_tell_where_the_memory_is(self):
        self.assertEqual((EXTENSION_DEVICE, 1),
                         self.buffer.__dlpack_device__())
        capsule = self.buffer[100:300].__dlpack__()
        address, managed = take(capsule)
        tensor = managed.tensor
        self.assertEqual(self.buffer.pointer + 100, tensor.data)
        self.assertEqual((EXTENSION_DEVICE, 1),
                         (tensor.device_type, tensor.device_id))
        self.assertEqual((1, 200), (tensor.dimensions, tensor.shape[0]))
        self.assertEqual((1, 8, 1), (tensor.code, tensor.bits, tensor.lanes))
        self.assertFalse(tensor.strides)
        self.assertEqual(0, tensor.byte_offset)
        managed.deleter(address)

    def test_are_versioned_for_who_knows_that(self):
        for asked in ((1, 0), (1, 3), (2, 0)):
            capsule = self.buffer.__dlpack__(max_version=asked)
            address, managed = take(capsule, b"dltensor_versioned", Versioned)
            self.assertEqual((1, 0), (managed.major, managed.minor))
            self.assertEqual(0, managed.flags)
            self.assertEqual(self.buffer.pointer, managed.tensor.data)
            managed.deleter(address)
        for asked in (None, (0, 8)):
            address, managed = take(self.buffer.__dlpack__(max_version=asked))
            managed.deleter(address)

    def test_keep_the_memory(self):
        capsule = self.buffer.__dlpack__()
        with self.assertRaises(BufferError):
            self.buffer.free()
        address, managed = take(capsule)
        del capsule
        gc.collect()
        with self.assertRaises(BufferError):
            self.buffer.free()
        managed.deleter(address)

    def test_keep_memory_without_a_buffer(self):
        buffer = Buffer(3 << 30, card=1)  # of 4 GiB
        part = buffer[:100].fill(ord("k"))
        capsule = part.__dlpack__()
        address, managed = take(capsule)
        del buffer, part, capsule
        gc.collect()
        seen = Buffer.wrap(managed.tensor.data, 100)
        self.assertEqual(b"k" * 100, seen.tobytes())
        with self.assertRaises(MemoryError):
            Buffer(3 << 30, card=1)
        self.expect_log("cannot allocate")
        managed.deleter(address)
        Buffer(3 << 30, card=1).free()

    def test_end_on_any_thread(self):
        """ctypes calls the deleter without the interpreter's lock."""
        taken = [take(self.buffer.__dlpack__()) for _ in range(8)]
        threads = [threading.Thread(target=managed.deleter, args=(address,))
                   for address, managed in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_end_with_their_last_reference(self):
        for version in (None, (1, 0)):
            capsule = self.buffer.__dlpack__(max_version=version)
            del capsule

    def test_are_copied_for_who_wants_that(self):
        self.buffer.fill(ord("c"))
        capsule = self.buffer.__dlpack__(copy=True, max_version=(1, 0))
        address, managed = take(capsule, b"dltensor_versioned", Versioned)
        self.assertEqual(IS_COPIED, managed.flags)
        self.assertNotEqual(self.buffer.pointer, managed.tensor.data)
        copied = Buffer.wrap(managed.tensor.data, 1000)
        self.assertEqual(b"c" * 1000, copied.tobytes())
        self.assertEqual("gaudi1", copied.card)
        managed.deleter(address)

    def test_are_refused_where_they_cannot_be_served(self):
        for request in ({"stream": 1}, {"stream": 0}, {"dl_device": (1, 0)},
                        {"dl_device": (EXTENSION_DEVICE, 0)}):
            with self.assertRaises(BufferError):
                self.buffer.__dlpack__(**request)
        self.buffer.__dlpack__(stream=-1, copy=False,
                               dl_device=(EXTENSION_DEVICE, 1))

    def test_are_no_arrays_of_the_host(self):
        """The capsule ends while numpy's exception is on its way."""
        with self.assertRaises((RuntimeError, BufferError)) as failure:
            numpy.from_dlpack(self.buffer)
        self.assertNotIsInstance(failure.exception, ucx_gaudi.Error)

    def test_may_be_left_at_the_end(self):
        said = common.run_python(
            "import ucx_gaudi\n"
            "capsule = ucx_gaudi.Buffer(100).__dlpack__()\n"
            "cycle = [ucx_gaudi.Buffer(100).__dlpack__()]\n"
            "cycle.append(cycle)\n")
        self.assertEqual("", said)


if __name__ == "__main__":
    common.main()
