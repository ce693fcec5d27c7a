#pragma once

// What the parts of the library that stands in for the CUDA driver share. All of it is used under the lock of
// fake_state() unless said otherwise.

#include <coxswain/tests/fake_cuda/fake_cuda.hpp>

#include <cuda.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

constexpr std::size_t fake_device_memory = std::size_t{4} << 30U;  // bytes of each

/// What a stream does: looked at again and again until it returns true. A copy of it does the same once more.
using FakeWork = std::function<bool(bool first_look)>;

/// What an event has seen: streams may wait for it when the event itself is gone.
struct FakeRecords {
  std::uint64_t recorded = 0;                  // so often
  std::uint64_t reached = 0;                   // up to that record
  std::chrono::steady_clock::time_point time;  // when it was
};

}  // namespace cox::test

// What the driver's handles point to.
struct CUctx_st {
  int device;
};
struct CUevent_st {
  std::shared_ptr<cox::test::FakeRecords> records = std::make_shared<cox::test::FakeRecords>();
};
struct CUstream_st {
  struct Given {
    std::uint64_t number;  // so much was given to all streams before
    cox::test::FakeWork work;
  };
  std::deque<Given> work;
  bool begun = false;           // the first has been looked at
  CUgraph capture = nullptr;    // what is enqueued goes there
  bool capture_failed = false;  // by a call that is not allowed meanwhile
  int device = 0;
};
struct CUfunc_st {
  std::string name;
  const cox::test::FakeCuda::KernelType* type;
};
struct CUgraphNode_st {
  CUfunction function = nullptr;
  std::array<unsigned, 3> cubes{};
  std::vector<std::vector<std::byte>> arguments;
  cox::test::FakeWork captured;  // where there is no function
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::pair<CUgraphNode, CUgraphNode_st>> nodes;  // in their order
};

namespace cox::test {

struct FakeWorld {
  std::array<CUctx_st, FakeCuda::most_devices> contexts{{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}}};
  std::array<std::size_t, FakeCuda::most_devices> memory{};                    // bytes that are taken
  std::map<CUmemGenericAllocationHandle, std::pair<int, std::size_t>> pieces;  // whose, and of how many bytes
  std::map<CUdeviceptr, std::pair<int, std::size_t>> allocations;
  std::map<CUdeviceptr, std::pair<void*, std::size_t>> reservations;  // what was mapped for each, and bytes of it
  std::map<CUdeviceptr, std::size_t> mapped;                          // bytes of memory at addresses of reservations
  std::set<CUstream> streams;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
  std::uint64_t submitted_count = 0;
  std::condition_variable work_available;  // work, or a failure
  std::condition_variable done;            // some of it
};

inline constexpr CUresult fake_fault = CUDA_ERROR_ILLEGAL_ADDRESS;

[[nodiscard]] FakeCuda& fake_state();  // any thread, without the lock
[[nodiscard]] FakeWorld& fake_world();

/// Starts the thread that does the streams' work, once. Without the lock.
void start_fake_gpus();
/// What a call that can fail returns, if it does.
[[nodiscard]] CUresult fake_failure(const char* function = __builtin_FUNCTION());
/// What a call returns that is not allowed while the calling thread captures: the capture has failed then.
[[nodiscard]] CUresult refuse_in_capture(const char* function = __builtin_FUNCTION());
/// Gives the stream something to do, or to note in its capture. Takes the lock.
[[nodiscard]] CUresult enqueue(CUstream stream, FakeWork work, const char* function = __builtin_FUNCTION());
[[nodiscard]] CUresult enqueue_once(CUstream stream, std::function<void()> piece,
                                    const char* function = __builtin_FUNCTION());
/// What a node of a graph does when it is its turn.
[[nodiscard]] FakeWork work_of(const CUgraphNode_st& node);

[[nodiscard]] inline std::unique_lock<std::mutex> lock_fake() { return std::unique_lock(fake_state().mutex); }

template <class T>
[[nodiscard]] CUresult make(T** made, const char* function = __builtin_FUNCTION()) {
  const auto lock = lock_fake();
  if (const CUresult result = fake_failure(function); result != CUDA_SUCCESS) return result;
  *made = new T();
  ++fake_state().live;
  return CUDA_SUCCESS;
}

template <class T>
CUresult give_back(T* made) {
  const auto lock = lock_fake();
  --fake_state().live;
  delete made;
  return CUDA_SUCCESS;
}

/// The device whose context the calling thread has made current.
[[nodiscard]] int current_device() noexcept;  // without the lock

[[nodiscard]] inline void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace cox::test
