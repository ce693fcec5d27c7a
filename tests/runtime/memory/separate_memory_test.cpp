#include <coxswain/runtime/memory/separate_memory.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <memory>
#include <optional>

using cox::MemoryUsage;
using cox::SeparateMemory;

TEST_CASE("Separate memory is counted until its count is destroyed, also after the device") {
  std::optional<SeparateMemory> memory(std::in_place);
  std::shared_ptr<void> first = memory->count(100, 4096);
  std::shared_ptr<void> second = memory->count(5000, 8192);
  CHECK(memory->reserved() == 12288);
  CHECK(memory->usage() == MemoryUsage{.number_allocs = 2,
                                       .bytes_in_use = 5100,
                                       .bytes_padding = 7188,
                                       .bytes_reserved = 12288,
                                       .peak_bytes_in_use = 5100,
                                       .peak_bytes_reserved = 12288});
  second.reset();
  CHECK(memory->usage() == MemoryUsage{.number_allocs = 1,
                                       .bytes_in_use = 100,
                                       .bytes_padding = 3996,
                                       .bytes_reserved = 4096,
                                       .peak_bytes_in_use = 5100,
                                       .peak_bytes_reserved = 12288});
  memory.reset();
  first.reset();
}
