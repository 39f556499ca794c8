# SPDX-License-Identifier: BSD-3-Clause
"""Device memory as tensors of bytes, by DLPack."""

import ctypes
import os

# A device of a kind that DLPack has no number for (kDLExtDev). Gaudi has none.
DEVICE_TYPE = 12
_IS_COPIED = 2

_helper = ctypes.PyDLL(
    os.path.join(os.path.dirname(os.path.abspath(__file__)), "libucx_gaudi_dlpack.so"))
_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_int64,
    ctypes.c_int32, ctypes.c_int32, ctypes.c_uint, ctypes.c_uint64)(
        ("gaudi_dlpack_capsule", _helper))


def device_of(card):
    """(type, number) of a card, "gaudi1" for instance."""
    return (DEVICE_TYPE, int(card[len("gaudi"):]))


def check_request(device, stream, dl_device):
    """Refuse what cannot be done. A stream of -1 asks not to wait for one,
    which is what mpi4py says."""
    if stream not in (None, -1):
        raise BufferError("Gaudi memory of ucx_gaudi has no streams")
    if dl_device is not None and tuple(dl_device) != device:
        raise BufferError(f"the memory is on DLPack's device {device}, and is "
                          f"not moved to {tuple(dl_device)}")


def make_capsule(hold, address, size, device, max_version, copied):
    """A capsule that keeps `hold` until the tensor ends."""
    versioned = max_version is not None and max_version[0] >= 1
    return _capsule(hold, address, size, *device, 1 if versioned else 0,
                    _IS_COPIED if versioned and copied else 0)
