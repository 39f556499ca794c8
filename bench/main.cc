/* SPDX-License-Identifier: BSD-3-Clause */
#include "ipc_peer.h"
#include "session.h"

#include <benchmark/benchmark.h>

#include <string>

#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    /* A box of our own. */
    setenv("HLTHUNK_EMU_NODE", ("bench-" + std::to_string(getpid())).c_str(),
           1);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    if (getenv("GAUDI_BENCH_WITHOUT_MODULE") == nullptr) {
        gaudi::bench::ipc_peer::start();
        gaudi::bench::load_module();
    }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
