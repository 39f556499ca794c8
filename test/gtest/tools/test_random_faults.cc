/* SPDX-License-Identifier: BSD-3-Clause */
/* Whatever fails at one side of an operation: the bytes are right or there is
 * an error, and the other side goes on. */
#include "gtest/tools/release.h"
#include "gtest/tools/two_peers.h"

#include <cstdlib>
#include <iterator>
#include <random>
#include <tuple>

namespace gaudi::test {

namespace {

/* With the old protocols each of these once ended the side that was well, or
 * left wrong bytes. */
enum place { at_client, at_server };
struct known_fault {
    const char *name;
    place where;
    const char *fault;
    const char *what; /* see peer/ucp_faults.cc */
    const char *rndv_thresh = "auto";
};

void PrintTo(const known_fault &what, std::ostream *to)
{
    *to << what.name;
}

const known_fault known_faults[] = {
    {"a_card_lost_at_a_get", at_client, "submit#5=reset",
     "get 5000000 gaudi gaudi keys"},
    {"a_card_lost_before_a_key", at_server, "map#1=reset",
     "get 3000 plain gaudi keys"},
    {"a_card_removed_under_a_message", at_client, "job#1+=remove",
     "tag 1048576 gaudi gaudi operation"},
    {"no_process_vm_readv", at_client, "deny=process_vm_readv",
     "get 3000 gaudi heap keys"},
    {"no_process_vm_readv_to_probe", at_client, "deny=process_vm_readv",
     "put 3000 gaudi heap keys"},
    {"no_sendmsg", at_server, "deny=sendmsg", "get 3000 gaudi gaudi keys"},
    {"no_recvmsg", at_client, "deny=recvmsg", "get 3000 gaudi gaudi keys"},
    {"a_job_aborted_at_an_eager_message", at_client, "job#1=abort",
     "tag 8 gaudi heap operation", "inf"},
    {"a_card_lost_at_an_eager_message", at_client, "job#1=reset",
     "tag 8 gaudi heap operation", "inf"},
    {"a_card_lost_at_the_second_part_of_a_message", at_client, "job#2+=reset",
     "tag 20000 gaudi heap operation", "inf"},
};

/* GAUDI_TEST_FAULTS says otherwise, and GAUDI_TEST_SEED which. */
constexpr unsigned usual_count = 40;

unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *wished = std::getenv(name);
    return (wished == nullptr) ? otherwise : std::strtoul(wished, nullptr, 10);
}

class random_faults : public two_peers {
protected:
    template <size_t count>
    const char *any_of(const char *const (&values)[count])
    {
        return values[random_() % count];
    }

    /* Calls that operations make of the driver, and what jobs meet with. */
    std::string any_fault()
    {
        static constexpr const char *errors[] = {
            "EFAULT", "EINVAL", "ETIMEDOUT", "EMFILE", "ENOMEM", "EIO",
            "EPERM",  "EBUSY",  "reset",     "kill",   "remove"};
        static constexpr const char *calls[]   = {"map", "submit", "submit",
                                                  "wait"};
        static constexpr const char *of_jobs[] = {
            "abort", "abort", "kill", "reset", "lose:50ms", "remove"};
        static constexpr const char *numbers[] = {"#1", "#2", "#5", "#1+",
                                                  "#3+"};
        if ((random_() % 3) == 0) {
            return std::string("job") + any_of(numbers) + "=" + any_of(of_jobs);
        }
        return any_of(calls) + std::string(any_of(numbers)) + "=" +
               any_of(errors);
    }

    /* Of one operation: see peer/ucp_faults.cc. */
    arguments any_case()
    {
        static constexpr const char *operations[] = {"tag", "put", "get"};
        static constexpr const char *sizes[] = {"8", "3000", "40000", "1048576",
                                                "5000000"};
        static constexpr const char *kinds[][2] = {
            {"gaudi", "gaudi"}, {"gaudi", "heap"}, {"plain", "gaudi"}};
        static constexpr const char *moments[] = {"keys", "operation"};
        const std::string what                 = any_of(operations);
        const std::string size                 = any_of(sizes);
        const auto &[here, there] = kinds[random_() % std::size(kinds)];
        return {what, size, here, there, any_of(moments)};
    }

    /* Other transports send what could not be fetched. */
    process_options any_options(bool is_message)
    {
        static constexpr const char *lists[]   = {"gaudi_copy,gaudi_ipc",
                                                  "gaudi_copy,gaudi_ipc,sm"};
        static constexpr const char *schemes[] = {"auto", "get_zcopy",
                                                  "put_zcopy"};
        process_options options                = with(
                           {{"UCX_TLS", lists[is_message ? 0 : random_() % std::size(lists)]},
                            {"UCX_RNDV_SCHEME", any_of(schemes)},
                            {"UCX_PROTO_ENABLE", default_protocols},
                            {"UCX_KEEPALIVE_INTERVAL", "500ms"},
                            {"UCX_HANDLE_ERRORS", "none"},
                            {"UCX_LOG_LEVEL", "error"}});
        options.variables["HLTHUNK_EMU_NODE"] +=
            "-" + std::to_string(number_++);
        return options;
    }

    void run_any()
    {
        const arguments what          = any_case();
        const process_options options = any_options(what[0] == "tag");
        const std::string fault       = any_fault();
        run_one(what, fault, (random_() % 2) == 0, options);
    }

    static void run_one(const arguments &what, const std::string &fault,
                        bool of_server, const process_options &options)
    {
        const auto command = [&](const char *role, bool faulty) {
            return under_launcher(
                joined(joined({GAUDI_TOOLS_DIR "/ucp_faults", role}, what),
                       {faulty ? fault : "-"}),
                {"--emulate=2"});
        };
        std::string told =
            fault + (of_server ? " of the server" : " of the client");
        for (const auto &part : what) {
            told += " " + part;
        }
        for (const auto &[name, value] : options.variables) {
            told += " " + name + "=" + value;
        }
        SCOPED_TRACE(told);
        const peers_result result =
            run_both({command("server", of_server), options},
                     {command("client", !of_server), options}, false);
        expect_end(of_server ? result.server : result.client, faulty);
        expect_end(of_server ? result.client : result.server, well);
    }

    std::mt19937_64 random_;

private:
    unsigned number_ = 0;
};

class faults_that_were_met
    : public random_faults,
      public ::testing::WithParamInterface<
          std::tuple<known_fault, const char *>> { /* and protocols */
};

} // namespace

TEST_P(faults_that_were_met, end_in_right_bytes_or_an_error)
{
    const auto &[known, protocols] = GetParam();
    const arguments what           = words(known.what);
    run_one(what, known.fault, known.where == at_server,
            with({{"UCX_TLS", "gaudi_copy,gaudi_ipc"},
                  {"UCX_PROTO_ENABLE", protocols},
                  {"UCX_RNDV_THRESH", known.rndv_thresh},
                  {"UCX_HANDLE_ERRORS", "none"},
                  {"UCX_LOG_LEVEL", "error"}}));
}

INSTANTIATE_TEST_SUITE_P(as, faults_that_were_met,
                         ::testing::Combine(::testing::ValuesIn(known_faults),
                                            ::testing::ValuesIn(protocols())),
                         [](const auto &test) {
                             return std::string(std::get<0>(test.param).name) +
                                    "_proto_" + std::get<1>(test.param);
                         });

/* UCP's new protocols tell the receiver of the bytes without a look at how the
 * puts went. Those of 1.13 then end the process. */
TEST_F(random_faults, of_the_sender_put_no_wrong_bytes_at_a_rendezvous)
{
    run_one(words("tag 40000 gaudi gaudi keys"), "submit#1=EFAULT", false,
            with({{"UCX_TLS", "gaudi_copy,gaudi_ipc"},
                  {"UCX_RNDV_SCHEME", "put_zcopy"},
                  {"UCX_PROTO_ENABLE", default_protocols},
                  {"UCX_KEEPALIVE_INTERVAL", "500ms"},
                  {"UCX_HANDLE_ERRORS", "none"},
                  {"UCX_LOG_LEVEL", "error"}}));
}

TEST_F(random_faults, end_in_right_bytes_or_an_error)
{
    const unsigned long seed =
        setting("GAUDI_TEST_SEED", std::random_device()());
    const unsigned long count = setting("GAUDI_TEST_FAULTS", usual_count);
    RecordProperty("seed", std::to_string(seed));
    SCOPED_TRACE("GAUDI_TEST_SEED=" + std::to_string(seed));
    for (unsigned long i = 0; i < count; ++i) {
        random_.seed(seed + i);
        SCOPED_TRACE("pair " + std::to_string(i));
        run_any();
    }
}

} // namespace gaudi::test
