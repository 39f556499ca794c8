# SPDX-License-Identifier: BSD-3-Clause
"""What run_commands.py knows of the commands in pages."""

import re

# What stands for something in a command, or would take long.
PLACEHOLDERS = {
    "PROGRAM": "ucx_info -v",
    "SERVER": "ucx_info -v",
    "PREFIX": "prefix",
    "FOLDER": "$PWD/build",
    "65536 0.5": "65536 0.01", # as long for each of 14 sizes
}

# Commands that other tests run: what they begin with, and that test.
ELSEWHERE = [
    # Whoever runs this test runs these.
    (r"(\./)?scripts/test\b", "this"),
    (r"GAUDI_TEST_\w+=\S+ scripts/test\b", "this"),
    (r"scripts/install-packages\b", "this"),
    (r"cmake --(preset release|build --preset release)\b", "this"),
    # Needs a root folder of another distribution; the test does it in this one.
    (r"chroot ROOT ucx_info", "static.source_trees_of_ucx_are_looked_at"),
    (r"scripts/fetch-ucx-source\b", "static.source_trees_of_ucx_are_looked_at"),
    # Install what was built, or take it away. scripts/package itself configures
    # and builds a second tree, which takes minutes: the test makes the same packages
    # of the tree that is there.
    (r"scripts/package\b|ls build/package|sudo apt-get (install|purge)\b",
     "install.packages_can_be_installed_and_removed"),
    # Take long, or measure.
    (r"test/ucx_gtest/run\.py\b", "ucx_gtest.host"),
    (r"test/mutants/run\.py\b", "static.faults_can_be_made"),
    (r"scripts/bench\b", "bench.measures_this_build"),
    # A UCX with statistics, which no distribution has.
    (r"UCX_STATS_DEST=|grep -A 2 gaudi_copies",
     "statistics.have_bytes_and_operations_of_each_mover"),
    # A mount, and FUSE.
    (r"ucx_vfs\b|cd /tmp/ucx/|grep \. copies",
     "counts.have_what_cards_and_the_cpu_moved"),
    # Namespaces, which not every system lets a test have, and container
    # runtimes, which have the same.
    (r"docker run\b",
     "with/ipc_processes.of_containers_with_a_common_network/"
     "proto_y"),
    (r"mkdir -m 700 |UCX_GAUDI_IPC_DIR=",
     "with/ipc_pods.reach_each_other_by_a_folder/proto_y"),
    (r"sudo unshare\b",
     "with/ipc_processes.of_containers_with_a_common_network/proto_y"),
    (r"\./scripts/quickstart\b", "docs.quickstart"),
]

# What the help of ucx_perftest has where it is an MPI program.
MPI_MODE = "-P <0|1>"

# program.c, where a page has none.
PROGRAM = """
#include <stdio.h>
#include <ucp/api/ucp.h>
#include <ucx_gaudi.h>
int main(void)
{
    printf("%u %d\\n", ucx_gaudi_version(), (int)ucx_gaudi_memory_type());
    return ucp_get_version_string() == NULL;
}
"""

# No test gets these from whoever runs it.
NOT_PASSED_ON = ("UCX_", "HLTHUNK_", "GAUDI_", "HABANA_", "HLS_", "LD_",
                 "PKG_CONFIG", "OMPI_", "XDG_", "PYTHON")

# What a user who is root has to tell Open MPI, and one with few cores.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def test_of(command):
    """The test that runs the command elsewhere, or None."""
    for beginning, name in ELSEWHERE:
        if re.match(beginning, command):
            return name
    return None


def status_of(command):
    """What the command ends with on a machine without Gaudi cards."""
    return 1 if re.fullmatch(r"ucx-gaudi (info|check)( --json)?", command) else 0


def is_this_run(name):
    return name == "this"
