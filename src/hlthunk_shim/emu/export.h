/**
 * Marks a function of the library's public ABI.
 */
#pragma once

#define HLTHUNK_PUBLIC extern "C" __attribute__((visibility("default")))
