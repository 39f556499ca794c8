/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

/** A function of a library's public ABI. */
#define HLTHUNK_PUBLIC extern "C" __attribute__((visibility("default")))
