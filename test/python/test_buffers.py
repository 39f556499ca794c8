#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Buffers of the Python package, in this process.

usage: test_buffers.py ROOT BUILD_DIRECTORY [unittest's arguments]
"""

import array
import copy
import gc
import os
import pickle
import re
import signal
import threading
import unittest.mock
import weakref

import common
import numpy
import ucx_gaudi
from ucx_gaudi import Buffer, _library

NO_DEVICE, INVALID_ADDR, BUSY = -14, -7, -15


def pattern(size, seed=0):
    return bytes((i * 31 + seed * 7) % 253 for i in range(size))


class Buffers(common.LoggedTest):
    def test_have_what_was_copied_there(self):
        with Buffer(100_000) as buffer:
            self.assertEqual(100_000, len(buffer))
            self.assertEqual(100_000, buffer.size)
            self.assertEqual(100_000, buffer.nbytes)
            buffer.copy_from(pattern(100_000))
            self.assertEqual(pattern(100_000), buffer.tobytes())

    def test_take_all_that_has_the_buffer_protocol(self):
        data = pattern(800)
        numbers = numpy.frombuffer(data, dtype=numpy.float64)
        with Buffer(800) as buffer:
            for source in (data, bytearray(data), memoryview(data),
                           array.array("d", numbers), numbers,
                           numbers.reshape(10, 10)):
                buffer.fill(0).copy_from(source)
                self.assertEqual(data, buffer.tobytes())
            for target in (bytearray(800), array.array("d", [0.0] * 100),
                           numpy.zeros((10, 10))):
                buffer.copy_to(target)
                self.assertEqual(data, bytes(target))

    def test_refuse_what_they_cannot_write_or_read(self):
        with Buffer(800) as buffer:
            with self.assertRaises(BufferError):
                buffer.copy_to(b"x" * 800)
            with self.assertRaises((BufferError, ValueError)):
                buffer.copy_from(numpy.zeros((20, 20))[:, ::2])
            for no_buffer in (None, 5, "text", [1, 2]):
                with self.assertRaises(TypeError):
                    buffer.copy_from(no_buffer)

    def test_are_copied_in_parts(self):
        with Buffer(1000) as buffer:
            buffer.fill(ord("."))
            buffer.copy_from(b"middle", offset=500)
            self.assertEqual(b"." * 500 + b"middle" + b"." * 494,
                             buffer.tobytes())
            part = buffer[498:508]
            self.assertEqual(buffer.pointer + 498, part.pointer)
            self.assertEqual(b"..middle..", part.tobytes())
            part[2:8].copy_from(b"MIDDLE")
            seen = bytearray(4)
            buffer.copy_to(seen, offset=504)
            self.assertEqual(b"LE..", seen)
            self.assertEqual(b"..", buffer[-2:].tobytes())

    def test_are_never_left(self):
        with Buffer(100) as buffer:
            buffer.copy_from(b"", offset=100)
            for offset, size in ((96, 5), (-1, 1), (101, 0), (1 << 70, 1)):
                with self.assertRaises(ValueError):
                    buffer.copy_from(b"x" * size, offset=offset)
            with self.assertRaises(ValueError):
                buffer.copy_to(bytearray(101))
            for part in (slice(0, 100, 2), slice(5, 5), slice(9, 3),
                         slice(None, None, -1)):
                with self.assertRaises(ValueError):
                    _ = buffer[part]
            with self.assertRaises(TypeError):
                _ = buffer[0]
            self.assertEqual(100, buffer[-500:500].size)

    def test_are_filled_with_patterns(self):
        with Buffer(48) as buffer:
            self.assertEqual(b"\x07" * 48, buffer.fill(7).tobytes())
            self.assertEqual(b"\xff" * 48, buffer.fill(255).tobytes())
            for value in (b"ab", b"0123456789abcdef"):
                self.assertEqual(value * (48 // len(value)),
                                 buffer.fill(value).tobytes())
            seen = numpy.zeros(12, dtype=numpy.float32)
            buffer.fill(numpy.float32(1.5)).copy_to(seen)
            self.assertTrue((seen == 1.5).all())
            for value in (-1, 256, 300, 1 << 70, b"", b"abc", b"x" * 32):
                with self.assertRaises(ValueError):
                    buffer.fill(value)
            with self.assertRaises(ValueError):
                buffer[:5].fill(b"ab")

    def test_are_copied_to_each_other(self):
        with Buffer(5000) as one, Buffer(3000, card=2) as other:
            one.copy_from(pattern(5000))
            other.copy_from(one[1000:4000])
            self.assertEqual(pattern(5000)[1000:4000], other.tobytes())
            one.fill(0)
            one.copy_from(other, offset=2000)
            self.assertEqual(pattern(5000)[1000:4000], one[2000:].tobytes())
            part = one[100:200]
            other.copy_to(part, offset=50)
            self.assertEqual(pattern(5000)[1050:1150], part.tobytes())
            with self.assertRaises(ucx_gaudi.Error):
                one[0:100].copy_from(one[50:150])
            self.expect_log("they overlap")

    def test_are_on_the_card_that_was_chosen(self):
        cards = ucx_gaudi.cards()
        self.assertEqual(["gaudi0", "gaudi1", "gaudi2"],
                         [card.name for card in cards])
        for card in (1, "1", "gaudi1", cards[1].bus_id, cards[1]):
            with Buffer(10, card=card) as buffer:
                self.assertEqual("gaudi1", buffer.card)
        self.assertEqual("open", ucx_gaudi.cards()[1].state)
        with self.assertRaises(ucx_gaudi.Error) as failure:
            Buffer(10, card="gaudi9")
        self.assertEqual(NO_DEVICE, failure.exception.status)
        self.assertIn("No such device", str(failure.exception))
        self.expect_log("'gaudi9' is none of the 3 cards")
        for card in (1.5, True, b"gaudi1"):
            with self.assertRaises(TypeError):
                Buffer(10, card=card)

    def test_are_of_some_bytes_that_the_card_has(self):
        for size in (0, -1, 1 << 64, (1 << 64) + 5):
            with self.assertRaises(ValueError):
                Buffer(size)
        with self.assertRaises(TypeError):
            Buffer("10")
        with self.assertRaises(MemoryError) as failure:
            Buffer(1 << 50)
        self.assertIsInstance(failure.exception, ucx_gaudi.OutOfMemoryError)
        self.assertIsInstance(failure.exception, ucx_gaudi.Error)
        self.expect_log("cannot allocate")

    def test_end_once(self):
        buffer = Buffer(100)
        part = buffer[10:20]
        buffer.free()
        buffer.free()
        part.free()
        self.assertIn("freed", repr(buffer))
        for use in (buffer.tobytes, part.tobytes, lambda: buffer.fill(1),
                    lambda: buffer.pointer, lambda: buffer[1:2]):
            with self.assertRaises(ValueError):
                use()

    def test_are_freed_by_an_error(self):
        """Of ours or of the library. The error keeps frames that use them."""
        def wrong_size(one, other):
            one.copy_from(other)

        def failing_fill(one, _):
            with unittest.mock.patch.object(
                    _library, "fill",
                    side_effect=ucx_gaudi.Error("fill", NO_DEVICE)):
                one.fill(1)

        for use, expected in ((wrong_size, ValueError),
                              (failing_fill, ucx_gaudi.Error)):
            with self.subTest(use=use.__name__):
                with self.assertRaises(expected) as failure:
                    with Buffer(10) as one, Buffer(100) as other:
                        use(one, other)
                self.assertIs(expected, type(failure.exception))
                self.assertIsNone(failure.exception.__context__)
                for buffer in (one, other):
                    self.assertIn("freed", repr(buffer))

    def test_in_use_do_not_hide_an_error(self):
        stream = ucx_gaudi.Stream()
        with self.assertRaises(KeyError):
            with Buffer(3 << 30) as buffer:  # of 4 GiB
                stream.copy(buffer, b"x")
                raise KeyError
        with self.assertRaises(BufferError):
            with buffer:
                pass
        stream.close()
        del buffer
        Buffer(3 << 30).free()

    def test_are_freed_with_their_last_reference(self):
        """The card has 4 GiB."""
        for _ in range(8):
            part = Buffer(3 << 30)[100:200]
            part.fill(1)
            del part
        loop = [Buffer(3 << 30)]
        loop.append(loop)
        del loop
        gc.collect()
        Buffer(3 << 30).free()

    def test_stay_as_long_as_a_part_of_them(self):
        part = Buffer(3 << 30)[100:104]
        gc.collect()
        with self.assertRaises(MemoryError):
            Buffer(3 << 30)
        self.expect_log("cannot allocate")
        self.assertEqual(b"part", part.copy_from(b"part").tobytes())

    def test_are_not_freed_under_a_copy(self):
        """Whichever comes first, the copy ends well or finds no buffer."""
        for _ in range(20):
            buffer = Buffer(8 << 20)
            ends = []

            def copy():
                try:
                    ends.append(len(buffer.tobytes()))
                except ValueError:
                    ends.append(0)

            thread = threading.Thread(target=copy)
            thread.start()
            while thread.is_alive():
                try:
                    buffer.free()
                    break
                except BufferError:
                    pass
            thread.join()
            self.assertIn(ends, ([8 << 20], [0]))
            buffer.free()

    def test_wrap_memory_of_others(self):
        class Owner:
            pass

        owner = Owner()
        alive = weakref.ref(owner)
        with Buffer(1000, card=1) as memory:
            memory.fill(ord("m"))
            wrapped = Buffer.wrap(memory.pointer + 100, 50, owner=owner)
            del owner
            self.assertEqual("gaudi1", wrapped.card)
            wrapped[10:20].fill(ord("w"))
            self.assertIsNotNone(alive())
            wrapped.free()
            self.assertIsNone(alive())
            self.assertEqual(b"m" * 110 + b"w" * 10 + b"m" * 880,
                             memory.tobytes())
            with self.assertRaises(ucx_gaudi.Error) as failure:
                Buffer.wrap(memory.pointer + 990, 11)
            self.assertEqual(INVALID_ADDR, failure.exception.status)
        for pointer in (0, -1, 1 << 64):
            with self.assertRaises(ValueError):
                Buffer.wrap(pointer, 10)
        with self.assertRaises(ucx_gaudi.Error):
            Buffer.wrap(0x7000000, 10)

    def test_are_not_a_forked_childs(self):
        buffer = Buffer(100).fill(ord("p"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                buffer.tobytes()
            except ValueError:
                buffer.free()
                del buffer
                gc.collect()
                code = 0
            os._exit(code)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        self.assertEqual(b"p" * 100, buffer.tobytes())

    def test_of_a_parent_that_is_using_them_are_refused_in_a_child(self):
        """The thread that holds the lock is not there."""
        buffer = Buffer(100)
        stream = ucx_gaudi.Stream().copy(buffer, b"x")
        held, forked = threading.Event(), threading.Event()

        def hold():
            with buffer._memory.lock:
                held.set()
                forked.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            code = 1
            try:
                buffer.tobytes()
            except ValueError:
                del stream, buffer
                gc.collect()
                code = 0
            os._exit(code)
        forked.set()
        holder.join()
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stream.close()

    def test_are_not_copied_as_objects(self):
        with Buffer(10) as buffer:
            for way in (pickle.dumps, copy.copy, copy.deepcopy):
                with self.assertRaisesRegex(TypeError, "is of one process"):
                    way(buffer)

    def test_errors_go_from_process_to_process(self):
        for error in (ucx_gaudi.Error("f", NO_DEVICE),
                      ucx_gaudi.OutOfMemoryError("f", -4)):
            self.assertRegex(str(error), "^f: [A-Z]")
            again = pickle.loads(pickle.dumps(error))
            self.assertIs(type(error), type(again))
            self.assertEqual((error.status, str(error)),
                             (again.status, str(again)))

    def test_ask_the_library_for_nothing_that_they_do_not_know(self):
        """A newer one would write behind the structures."""
        header = (common.ROOT / "src/program/ucx_gaudi.h").read_text()
        for function, prefix, call in (
                ("_card_query", "CARD", ucx_gaudi.cards),
                ("_mem_query", "MEM", lambda: Buffer(1).free())):
            known = {1 << int(bit) for bit in re.findall(
                rf"UCX_GAUDI_{prefix}_ATTR_FIELD_\w+ *= 1 << (\d+)", header)}
            original = getattr(_library, function)
            asked = set()

            def ask(*arguments):
                # What byref() has is the structure.
                asked.add(arguments[-1]._obj.field_mask)
                return original(*arguments)

            with unittest.mock.patch.object(_library, function, ask):
                call()
            self.assertEqual({sum(known)}, asked)

    def test_keep_the_cards(self):
        with Buffer(100):
            with self.assertRaises(ucx_gaudi.Error) as failure:
                ucx_gaudi.close()
            self.assertEqual(BUSY, failure.exception.status)
            self.expect_log("the cards are in use")
        gc.collect()
        ucx_gaudi.close()
        self.assertEqual({"free"}, {card.state for card in ucx_gaudi.cards()})
        ucx_gaudi.open("gaudi2")
        self.assertEqual("open", ucx_gaudi.cards()[2].state)
        self.assertEqual("gaudi2", Buffer(1).card)


if __name__ == "__main__":
    common.main()
