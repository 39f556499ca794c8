#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs in Python of docs/interface.md do what the page says.

That in C is compiled and run with the commands of the page (test/docs).

usage: test_page.py ROOT BUILD_DIRECTORY [unittest's arguments]
"""

import re
import unittest

import common

PAGE = (common.ROOT / "docs/interface.md").read_text(encoding="utf-8")

# A framework's tensor, in memory of the stand-in for SynapseAI.
FRAMEWORK = """
import ctypes, sys, types
synapse = ctypes.CDLL({synapse!r}, mode=ctypes.RTLD_LOCAL)
device, pointer = ctypes.c_uint32(), ctypes.c_uint64()
assert synapse.synInitialize() == 0
assert synapse.synDeviceAcquire(ctypes.byref(device), None) == 0
assert synapse.synDeviceMalloc(device, ctypes.c_uint64(4096), ctypes.c_uint64(0),
                               ctypes.c_uint32(0), ctypes.byref(pointer)) == 0
class Tensor:
    numel = staticmethod(lambda: 1024)
    element_size = staticmethod(lambda: 4)
done = []
torch = types.ModuleType("torch")
torch.ones = lambda count, device: Tensor()
torch.hpu = types.SimpleNamespace(synchronize=lambda: done.append("synchronize"))
names = ["habana_frameworks", "habana_frameworks.torch",
         "habana_frameworks.torch.core", "habana_frameworks.torch.utils",
         "habana_frameworks.torch.utils.experimental"]
modules = dict((name, types.ModuleType(name)) for name in names)
for name in names[1:]:
    setattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2],
            modules[name])
modules[names[2]].mark_step = lambda: done.append("mark_step")
modules[names[4]]._data_ptr = lambda tensor: pointer.value
sys.modules.update(modules, torch=torch)
"""

AFTERWARDS = """
assert done == ["mark_step", "synchronize"], done
assert (memory.pointer, memory.size) == (pointer.value, 4096)
assert memory.fill(b"four").tobytes() == b"four" * 1024
assert [card.state for card in ucx_gaudi.cards()].count("open") == 1
"""


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.M)


class Page(unittest.TestCase):
    def test_has_a_program_in_python(self):
        program, _ = blocks("python")
        printed = common.run_python(program)
        self.assertIn("'gaudi0', 'gaudi1', 'gaudi2'", printed)
        self.assertIn("on gaudi0> b'pattern'", printed)

    def test_takes_a_frameworks_tensor(self):
        _, program = blocks("python")
        synapse = str(common.BUILD / "lib/synapse/libSynapse.so")
        printed = common.run_python(
            FRAMEWORK.format(synapse=synapse) + program + AFTERWARDS)
        self.assertIn("<ucx_gaudi.Buffer of 4096 bytes at ", printed)


if __name__ == "__main__":
    common.main()
