/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a test needs that not all kinds of cards have, stated by the test
 * itself:
 *
 *     TEST_F(suite, name)
 *     {
 *         GAUDI_NEEDS(own_card);
 *
 * Beside a framework (GAUDI_TEST_FRAMEWORK), on Gaudi3, or without imports
 * (HLTHUNK_EMU_IMPORT=n) it is skipped there, with the reason.
 */
#pragma once

namespace gaudi::test {

enum class need {
    /* Beside no framework: */
    own_card,        /**< the test opens it itself */
    card_to_reset,   /**< and goes on with it */
    no_card,         /**< a process without one */
    cards_of_ucx,    /**< UCX opens several */
    own_dmabufs,     /**< exports of the same memory are of the same block */
    own_pool,        /**< memory outside allocations is none */
    lone_driver,     /**< nobody else has loaded its library */
    failing_jobs,    /**< an engine goes on after one */
    driver_calls,    /**< allocations, mappings and openings are the module's */
    own_descriptors, /**< of the driver, that a child closes */
    ports_to_host,   /**< ports reach host memory */
    mapped_host,     /**< cards reach registered host memory */
    /* Not on Gaudi3: */
    second_card,             /**< of one process */
    own_submissions,         /**< it makes or counts them */
    cards_without_framework, /**< that work */
    pages_of_48_mb,
    card_of_a_child, /**< that was forked */
    /* Not without imports: */
    imports,
};

/** Why this process does not have it; nullptr when it does. */
const char *why_missing(need what);

/** Skip the running test when that is missing; in a child, end it so that
 *  @ref skips_like has its test skipped. @return Whether it is. */
bool skips_without(need what);

/** A test whose body is a child: whether that has ended by @ref skips_without,
 *  which skips the test. */
struct child_result;
bool skips_like(const child_result &child);

/** A base of fixtures, before what loads the module: beside a framework host
 *  memory is mapped on the card in this process, or the tests are skipped where
 *  others run in it, too. */
struct with_mapped_host_memory {
    with_mapped_host_memory();
};

} // namespace gaudi::test

#define GAUDI_NEEDS(_what)                                                     \
    do {                                                                       \
        if (gaudi::test::skips_without(gaudi::test::need::_what)) {            \
            return;                                                            \
        }                                                                      \
    } while (false)
