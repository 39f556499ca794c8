/* SPDX-License-Identifier: BSD-3-Clause */
#include "gtest/tools/fixture.h"

#include "common/process_state.h"
#include "common/scratch.h"
#include "util/unique_fd.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <random>
#include <regex>
#include <sstream>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace gaudi::test {

namespace {

/* Options of the launcher less --emulate above the double; what that would set
 * is written in front of the command as arguments of `env`. */
arguments without_emulator(arguments options, arguments &settings_p)
{
    static constexpr char emulate[] = "--emulate";

    const char *library = tested_library();
    if (library == nullptr) {
        return options;
    }
    arguments left;
    for (const std::string &option : options) {
        if (!option.starts_with(emulate)) {
            left.push_back(option);
            continue;
        }
        /* For programs that are linked with a libhl-thunk.so, too. */
        const std::string folder =
            std::filesystem::path(library).parent_path().string();
        settings_p.push_back(std::string("UCX_GAUDI_DRIVER") + "=" + library);
        settings_p.push_back("LD_LIBRARY_PATH=" + folder);
        if (option != emulate) {
            settings_p.push_back("HLTHUNK_EMU_DEVICES=" +
                                 option.substr(sizeof(emulate)));
        }
    }
    return left;
}

} // namespace

arguments under_launcher(const arguments &command, const arguments &options)
{
    arguments result;
    const arguments others = without_emulator(options, result);
    if (!result.empty()) {
        result.insert(result.begin(), "env");
    }
    result = joined(joined(result, {launcher, "run"}), others);
    result.emplace_back("--");
    return joined(result, command);
}

::testing::AssertionResult exited_with(int code, const process_result &result,
                                       const arguments &texts,
                                       const arguments &absent)
{
    if (result.exit_code != code) {
        return ::testing::AssertionFailure()
               << "exit code " << result.exit_code << ", signal "
               << result.signal
               << (result.timed_out ? ", killed at its deadline" : "")
               << ", it printed:\n"
               << result.output;
    }
    for (const bool wanted : {true, false}) {
        for (const std::string &text : wanted ? texts : absent) {
            if ((result.output.find(text) != std::string::npos) != wanted) {
                return ::testing::AssertionFailure()
                       << (wanted ? "it did not print: " : "it printed: ")
                       << text << "\nin:\n"
                       << result.output;
            }
        }
    }
    return ::testing::AssertionSuccess();
}

bool is_stock_complaint(const std::string &line)
{
    /* Of UCX's own modules on a machine without such a network, of UCX where
     * the user has no runtime folder, and of ucx_perftest's UCT tests. */
    static const std::regex stock("rdma_create_event_channel failed"
                                  "|failed to open CM on component rdmacm"
                                  "|failed to create directory '/run/user/"
                                  "|failed to watch on '[^']*/vfs.sock'"
                                  "|UCT tests also copy one-byte value");
    return std::regex_search(line, stock);
}

::testing::AssertionResult is_quiet_success(const process_result &result,
                                            const arguments &texts)
{
    static const std::regex complaint(
        "UCX +(WARN|ERROR|DIAG|FATAL) |[Aa]ssert|unused|==== backtrace"
        "|ucx-gaudi:|hlthunk|No such|cannot");
    ::testing::AssertionResult ended = exited_with(0, result);
    if (!ended) {
        return ended;
    }
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
        if (std::regex_search(line, complaint) && !is_stock_complaint(line)) {
            return ::testing::AssertionFailure()
                   << "it complained: " << line << "\nin:\n"
                   << result.output;
        }
    }
    return exited_with(0, result, texts);
}

::testing::AssertionResult has_lines(size_t count, const std::string &text,
                                     const process_result &result)
{
    const size_t found = lines_with(result.output, text).size();
    if (found == count) {
        return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << found << " lines with '" << text
                                         << "', not " << count << ", in:\n"
                                         << result.output;
}

arguments joined(arguments first, const arguments &second)
{
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

arguments words(const std::string &text)
{
    std::istringstream stream(text);
    return {std::istream_iterator<std::string>(stream), {}};
}

environment over(const std::string &tls, const std::string &protocols,
                 environment variables)
{
    variables["UCX_PROTO_ENABLE"] = protocols;
    if (!tls.empty()) {
        variables["UCX_TLS"] = tls;
    }
    return variables;
}

std::string as_name(std::string text)
{
    std::replace_if(
        text.begin(), text.end(),
        [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
    return text;
}

std::string
name_of_protocols(const ::testing::TestParamInfo<const char *> &info)
{
    return std::string("proto_") + info.param;
}

std::string name_of_generation(const ::testing::TestParamInfo<generation> &info)
{
    const auto &[word, proto] = info.param;
    return std::string(word) + "_proto_" + proto;
}

std::string preloadable(const std::string &file)
{
    static const scratch_directory links;
    if (file.find_first_of(" :") == std::string::npos) {
        return file;
    }
    const std::filesystem::path path(file);
    const std::string folder =
        links.path(std::to_string(std::hash<std::string>()(file)));
    const std::string link = folder + "/" + path.filename().string();
    std::filesystem::create_directory(folder);
    if (!std::filesystem::exists(link)) {
        std::filesystem::create_symlink(path, link);
    }
    return link;
}

std::string preloaded_name()
{
    const std::string file = std::string(library) + "/" + preloaded;
    if (preloadable(file) == file) {
        return file;
    }
    static const std::string of_launcher = [&] {
        std::string name =
            run(under_launcher({"printenv", "LD_PRELOAD"}, {}), {}).output;
        name.resize(name.find_first_of(":\n"));
        EXPECT_TRUE(std::filesystem::equivalent(name, file)) << name;
        return name;
    }();
    return of_launcher;
}

std::string quoted(const std::string &word)
{
    return "'" + word + "'";
}

namespace {

/* Among tests, until this process ends. */
bool reserve(unsigned short port)
{
    static std::vector<util::unique_fd> reserved;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    /* An abstract name: it begins with a zero. */
    const int length =
        std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                      "gaudi-test-port-%u", port);
    util::unique_fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (bind(fd.get(), reinterpret_cast<sockaddr *>(&address),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    length)) != 0) {
        return false;
    }
    reserved.push_back(std::move(fd));
    return true;
}

bool is_free(unsigned short port)
{
    sockaddr_in address{};
    address.sin_family      = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY); /* free on all of them */
    address.sin_port        = htons(port);
    const util::unique_fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return bind(fd.get(), reinterpret_cast<sockaddr *>(&address),
                sizeof(address)) == 0;
}

} // namespace

unsigned short find_free_port()
{
    /* Below those that the kernel gives to connections. */
    constexpr unsigned first = 15000;
    constexpr unsigned count = 15000;
    static unsigned next     = std::random_device()() % count;
    for (unsigned tries = 0; tries < count; ++tries) {
        const auto port = static_cast<unsigned short>(first + (next++ % count));
        if (reserve(port) && is_free(port)) {
            return port;
        }
    }
    return 0;
}

bool has_listener(unsigned short port)
{
    /* "sl: address:PORT remote:PORT STATE", 0A is LISTEN. A connection to try
     * would be taken for the one that the server waits for. */
    char wanted[32];
    std::snprintf(wanted, sizeof(wanted), ":%04X 00000000:0000 0A", port);
    return read_file("/proc/net/tcp").find(wanted) != std::string::npos;
}

tools::tools()
{
    static std::atomic<unsigned> count = 0;
    node_ = "tools-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

process_options tools::with(const environment &variables,
                            std::chrono::seconds deadline) const
{
    process_options options;
    options.deadline  = deadline;
    options.variables = variables;
    options.variables.try_emplace("HLTHUNK_EMU_NODE", node_);
    return options;
}

process_result tools::emulated(const arguments &command,
                               const environment &variables,
                               std::chrono::seconds deadline) const
{
    return run(under_launcher(command), with(variables, deadline));
}

} // namespace gaudi::test
