/* SPDX-License-Identifier: BSD-3-Clause */
/** @file What UCX's tests ask of HIP's version. */
#pragma once

#define HIP_VERSION 50000000
