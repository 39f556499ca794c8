/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/child.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

namespace {

/* With GAUDI_TEST_KERNEL, start again above the double of that kernel. */
void start_above_kernel_double(char **argv)
{
    const char *wished = std::getenv("GAUDI_TEST_KERNEL");
    const char *runs   = std::getenv("KERNEL_DOUBLE_KERNEL");
    if ((wished == nullptr) ||
        ((runs != nullptr) && (std::string(wished) == runs))) {
        return;
    }
    setenv("KERNEL_DOUBLE_KERNEL", wished, 1);
    setenv("GAUDI_TEST_HLTHUNK",
           GAUDI_BUILD_DIR "/lib/small-hlthunk/libhl-thunk.so", 0);
    /* By the place of this program: LD_PRELOAD splits names at spaces. */
    setenv("LD_PRELOAD", "$ORIGIN/../lib/libkernel_double.so", 1);
    execv("/proc/self/exe", argv);
    std::perror("/proc/self/exe");
    std::exit(EXIT_FAILURE);
}

/* Set what GAUDI_TEST_SETTINGS names: "NAME=VALUE NAME=VALUE". */
void apply_settings()
{
    const char *text = std::getenv("GAUDI_TEST_SETTINGS");
    std::istringstream settings((text != nullptr) ? text : "");
    for (std::string setting; settings >> setting;) {
        const size_t end = setting.find('=');
        if (end == std::string::npos) {
            std::fprintf(stderr, "GAUDI_TEST_SETTINGS: '%s' sets nothing\n",
                         setting.c_str());
            std::exit(EXIT_FAILURE);
        }
        setenv(setting.substr(0, end).c_str(), setting.substr(end + 1).c_str(),
               1);
    }
}

/* A box of our own, as the emulator makes it without settings but those of
 * GAUDI_TEST_SETTINGS, whose cards meet in host memory: several test programs
 * run at a time, and a developer may have variables set. Before the transports
 * read theirs. */
[[gnu::constructor(101)]] void prepare_environment(int argc, char **argv)
{
    if (gaudi::test::is_child(argc, argv)) {
        return;
    }
    std::vector<std::string> names;
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        for (const char *prefix :
             {"UCX_", "HLTHUNK_", "HABANA_", "HLS_", "GAUDI_MAPPING_TABLE="}) {
            if (text.starts_with(prefix)) {
                names.push_back(text.substr(0, text.find('=')));
            }
        }
    }
    for (const std::string &name : names) {
        if (name != "UCX_MEM_MMAP_HOOK_MODE") { /* CTest's, for a sanitizer */
            unsetenv(name.c_str());
        }
    }
    /* Containers that share a network have the same numbers of processes. */
    struct stat numbers {};
    (void)stat("/proc/self/ns/pid", &numbers);
    const std::string node = "gtest-" + std::to_string(numbers.st_ino) + "-" +
                             std::to_string(getpid());
    setenv("HLTHUNK_EMU_NODE", node.c_str(), 1);
    setenv("UCX_GAUDI_IPC_ROUTES", "host", 1);
    apply_settings();
}

} // namespace

#ifdef __SANITIZE_ADDRESS__
/* Otherwise the runtime takes a thread's block of variables for one of an old
 * glibc where it begins 16 bytes into a page (DTLS_on_tls_get_addr of
 * sanitizer_tls_get_addr.cc), and then looks for leaks at any address. */
extern "C" [[gnu::visibility("default")]] const char *__asan_default_options()
{
    return "intercept_tls_get_addr=0";
}
#endif

#ifdef __SANITIZE_THREAD__
/* Forked children of a process with threads start threads of their own. */
extern "C" [[gnu::visibility("default")]] const char *__tsan_default_options()
{
    return "die_after_fork=0";
}

/* The dynamic linker has a lock for what it knows of a library, which the
 * runtime does not see. Searches for cards that the program has open, and for a
 * parent's socket, look at descriptors that it may close meanwhile. */
extern "C" [[gnu::visibility("default")]] const char *
__tsan_default_suppressions()
{
    return "race:^_dl_new_object$\n"
           "race:^gaudi::shim::find_open_nodes\n"
           "race:^gaudi::shim::card::adopt\n"
           "race:^gaudi::emu::node_file::find\n"
           "race:close_inherited_turn";
}
#endif

#if defined(__SANITIZE_ADDRESS__)
/* Tests close verbs devices, and end, with handles that they have not given
 * back; as in rdma-core these are the program's. */
extern "C" const char *__lsan_default_suppressions();
extern "C" __attribute__((visibility("default"), used)) const char *
__lsan_default_suppressions()
{
    return "leak:^hlibv_\nleak:^ibv_get_device_list$\nleak:^hbldv_create_";
}
#endif

int main(int argc, char **argv)
{
    if (gaudi::test::is_child(argc, argv)) {
        return gaudi::test::run_as_child(argv);
    }
    start_above_kernel_double(argv);
    ::testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
}
