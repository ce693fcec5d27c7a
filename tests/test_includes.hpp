#pragma once

// Precompiled for all tests if COX_PRECOMPILED_HEADERS is set. No header of the library: a test that does not include
// it may use one of its names for something else.

#include <coxswain/tests/support/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
