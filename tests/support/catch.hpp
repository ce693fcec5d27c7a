#pragma once

// Catch2 2 (Debian 12) or 3 (Ubuntu 24.04), whichever is installed, with the names that both then share.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>

#include <string>
namespace Catch::Matchers {
inline auto ContainsSubstring(const std::string& substring) { return Contains(substring); }
}  // namespace Catch::Matchers
#endif
