# SPDX-License-Identifier: BSD-3-Clause
"""Faults that the tests have to notice: what is broken, and the edit that breaks
it. After a rebuild of what they are in, the same faults are made there anew."""

import collections

Mutant = collections.namedtuple("Mutant", "name fault file old new")

BASE = "src/uct/gaudi/base/"
IPC = "src/uct/gaudi/ipc/"

MUTANTS = [
    Mutant("fence", "an operation begins before those ahead of a fence ended",
           BASE + "transfer/operation.cc",
           "(op->what != operation_kind::flush_all)) {\n"
           "            return false;",
           "(op->what != operation_kind::flush_all)) {\n"
           "            return true;"),
    Mutant("fence between transports", "others start while a put is under way",
           BASE + "transfer/engine.cc",
           "    fence();\n    wait_for_fence();",
           "    fence();"),
    Mutant("direction", "zero copies go from target to source",
           BASE + "transfer/rma.h",
           "engine_of(ep).start(domain_of(ep), is_put ? remote : local,\n"
           "                                is_put ? local : remote, length",
           "engine_of(ep).start(domain_of(ep), is_put ? local : remote,\n"
           "                                is_put ? remote : local, length"),
    Mutant("no completion", "an operation that failed is never completed",
           BASE + "transfer/operation.cc",
           "    if (completion != nullptr) {\n"
           "        uct_invoke_completion(",
           "    if ((completion != nullptr) && (status == UCS_OK)) {\n"
           "        uct_invoke_completion("),
    Mutant("two completions", "an operation that was given up ends twice",
           BASE + "transfer/operation.cc",
           "    if (op.has_ended) {\n        return;\n    }\n",
           ""),
    Mutant("end of a piece", "the last byte of a staged piece is not fetched",
           BASE + "transfer/engine_jobs.cc",
           "reinterpret_cast<void *>(op.src),\n"
           "                        next.length);",
           "reinterpret_cast<void *>(op.src),\n"
           "                        next.length - 1);"),
    Mutant("neighbour", "a copy with the host moves a byte too many",
           BASE + "transfer/engine.cc",
           "        queue.dma->submit(to_card ? va : chunk->va, "
           "to_card ? chunk->va : va,\n                          length,",
           "        queue.dma->submit(to_card ? va : chunk->va, "
           "to_card ? chunk->va : va,\n                          length + 1,"),
    Mutant("failed job", "an operation goes on when a job of it failed",
           BASE + "transfer/engine.cc",
           "    status_p = queue.judge_end(length, ended.status);",
           "    status_p = UCS_OK;"),
    Mutant("flush", "a flush of an endpoint waits for nothing",
           BASE + "transfer/engine.cc",
           "    if (operations_.is_flushed(domain)) {\n        return UCS_OK;",
           "    if ((domain != nullptr) || operations_.is_flushed(domain)) {\n"
           "        return UCS_OK;"),
    Mutant("flush's error", "a flush does not tell of what had no completion and failed",
           BASE + "transfer/operation.cc",
           "            op->status = status;\n        }\n    }\n"
           "    if (domain.failure",
           "        }\n    }\n    if (domain.failure"),
    Mutant("silent put", "a put without a completion that fails, fails nobody",
           BASE + "transfer/operation.cc",
           "        fail(*domain, op.sequence, status);\n",
           "        (void)status;\n"),
    Mutant("status", "a withdrawn key ends with another status",
           IPC + "inbound.cc",
           "        return UCS_ERR_CONNECTION_RESET;\n    }\n    ucs_status_t status",
           "        return UCS_ERR_IO_ERROR;\n    }\n    ucs_status_t status"),
    Mutant("key", "the owner of memory does not look at the range of a key",
           IPC + "exports.cc",
           "    if ((address < key.address) || (length > key.length) ||\n"
           "        (address - key.address > key.length - length)) {\n"
           "        return nullptr;",
           "    if ((address < key.address) && (length > key.length)) {\n"
           "        return nullptr;"),
    Mutant("chunks", "the owner copies to where a client says, chunk or not",
           IPC + "inbound.h",
           "        return (length != 0) && (offset <= chunk_bytes_) &&",
           "        return (length != 0) || (offset <= chunk_bytes_) &&"),
    Mutant("client's sleep", "a client that sleeps is not woken",
           IPC + "inbound.cc",
           "    if ((control().client_sleeps.load() != 0) &&",
           "    if ((control().client_sleeps.load() > 1) &&"),
    Mutant("wakeup", "who waits for an event is not told of the end of a job",
           BASE + "transfer/wakeup.cc",
           "    (void)!write(fd(), &one, sizeof(one));",
           "    (void)one;"),
    Mutant("unmapped", "memory that was unmapped keeps its registration",
           BASE + "ucx/rcache.cc",
           "    params.ucm_events         = UCM_EVENT_VM_UNMAPPED;",
           "    params.ucm_events         = 0;"),
    Mutant("given out", "freed memory that a card copies to is given out again",
           BASE + "transfer/planner.h",
           "        held.reset((status == UCS_OK) ? where.memory : nullptr);\n",
           "        if (status == UCS_OK) {\n"
           "            where.memory->put();\n        }\n"),
    Mutant("freed", "memory is freed while copies of others use it",
           IPC + "exports.cc",
           "                all.unused.wait(locked, "
           "[&] { return memory.uses_ == 0; });\n",
           ""),
    Mutant("fetch", "a message is sent whose bytes could not be fetched",
           BASE + "ucx/packing.h",
           "    return ucs_likely(fetch_failure == UCS_OK)",
           "    return ucs_likely(fetch_failure != UCS_ERR_LAST)"),
    Mutant("pending", "a request passes those that wait",
           BASE + "ucx/pending.h",
           "        if (group_of(ep).empty() &&\n            Transport",
           "        if (Transport"),
    Mutant("dead peer", "uct_ep_check does not notice that a peer has ended",
           IPC + "ipc_ep.cc",
           "    if (self.out->has_hung_up()) {\n"
           "        self.super.fail(UCS_ERR_ENDPOINT_TIMEOUT);",
           "    if (self.out->has_hung_up()) {\n"
           "        self.super.fail(UCS_ERR_CANCELED);"),
    Mutant("leak", "host memory stays mapped on the card",
           "src/hlthunk_shim/engine/cs_engine.cc",
           "        return card_.judge(lib().hlthunk_memory_unmap(",
           "        return (address != 0) ? 0 : card_.judge("
           "lib().hlthunk_memory_unmap("),
    Mutant("command buffers", "one is written anew while the card reads it",
           "src/hlthunk_shim/engine/cs_engine.cc",
           "slots_[i].buffer = i;",
           "slots_[i].buffer = i / 2;"),
    Mutant("child", "a child of a process with open cards may use them",
           "src/util/process.h",
           "inline bool is_cut_off()\n{\n    return ",
           "inline bool is_cut_off()\n{\n    return false && "),
]
