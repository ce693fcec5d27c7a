#pragma once

#include <coxswain/runtime/bytes/host_allocation.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace cox::test {

/// What became of the allocations of one test.
struct AllocationCount {
  std::atomic<int> made{0};
  std::atomic<int> released{0};
  std::thread::id released_on;  // the last one; look after joining
};

/// Stands in for the pinned memory of a server.
class CountedAllocation final : public HostAllocation {
 public:
  CountedAllocation(AllocationCount& count, std::unique_ptr<std::vector<std::byte>> memory)
      : HostAllocation(AllocationProperty::Pinned, std::span<std::byte>(*memory)),
        count_(count),
        memory_(std::move(memory)) {
    ++count_.made;
  }
  ~CountedAllocation() override {
    count_.released_on = std::this_thread::get_id();
    ++count_.released;
  }
  [[nodiscard]] static std::unique_ptr<CountedAllocation> of(AllocationCount& count, std::vector<std::byte> content) {
    return std::make_unique<CountedAllocation>(count, std::make_unique<std::vector<std::byte>>(std::move(content)));
  }

 private:
  AllocationCount& count_;
  std::unique_ptr<std::vector<std::byte>> memory_;
};

}  // namespace cox::test
