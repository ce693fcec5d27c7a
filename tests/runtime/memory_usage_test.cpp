#include <coxswain/tests/support/catch.hpp>

#include <coxswain/runtime/handle/memory_usage.hpp>

TEST_CASE("Memory usages add up and are shown with units and shares") {
  cox::MemoryUsage usage{.number_allocs = 1,
                         .bytes_in_use = 750,
                         .bytes_padding = 250,
                         .bytes_reserved = 1000,
                         .peak_bytes_in_use = 900,
                         .peak_bytes_reserved = 2000};
  usage += usage;
  REQUIRE(usage.number_allocs == 2);
  REQUIRE(usage.peak_bytes_reserved == 4000);
  REQUIRE(cox::to_string(usage) ==
          "2 allocations: in use 1.50 kB (1500 B) (75.0 %), padding 500 B (25.0 %), reserved 2.00 kB (2000 B); peak in "
          "use 1.80 kB (1800 B), peak reserved 4.00 kB (4000 B)");
  REQUIRE(cox::to_string(cox::MemoryUsage{}).find("0.0 %") != std::string::npos);
}
