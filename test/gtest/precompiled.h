/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Headers of others that most tests include, compiled once. A source includes
 * what it needs all the same: builds with a compiler cache do not use this.
 */
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>
