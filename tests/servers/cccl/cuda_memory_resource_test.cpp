// The memory of a client as a memory resource of CCCL, on GPUs and over the driver that stands in.
#include <coxswain/servers/cuda/server/cuda_memory_resource.hpp>

#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/foreign_memory.hpp>
#include <coxswain/tests/servers/contract/poison_contract.hpp>
#include <coxswain/tests/stand_ins/cuda_driver.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <limits>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace mr = ::cuda::mr;

#if CCCL_VERSION < 3001000
static_assert(mr::resource<CudaMemoryResource> && mr::async_resource<CudaMemoryResource>);
static_assert(mr::async_resource_with<CudaMemoryResource, mr::device_accessible>);
#else
static_assert(mr::synchronous_resource<CudaMemoryResource> && mr::resource<CudaMemoryResource>);
static_assert(mr::resource_with<CudaMemoryResource, mr::device_accessible>);
#endif
static_assert(!mr::resource_with<CudaMemoryResource, mr::host_accessible>);

namespace {

using Numbers = std::vector<std::uint32_t>;

/// A device, its memory resource, and a stream of another owner.
template <class Backend>
struct Memory {
  static constexpr std::size_t bytes = 4096;

  OpenDevice<Backend> device;
  typename Backend::Client& client = device.client();
  ForeignStream stream{device.device()};
  CudaMemoryResource resource{client};

  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { shutdown(device.device()); }

  [[nodiscard]] void* address(const Handle& handle) const {
    return reinterpret_cast<void*>(client.get_resource(handle).resource.address);
  }
  [[nodiscard]] ::cuda::stream_ref ref() const { return {stream.native()}; }
  void write(void* to, std::size_t word) { stream.copy_to_device(reinterpret_cast<CUdeviceptr>(to), word); }
  [[nodiscard]] std::uint32_t read(void* from) {
    stream.copy_to_host(9, reinterpret_cast<CUdeviceptr>(from));
    stream.sync();
    return stream.word(9);
  }
};

/// How many task errors there have been.
class CountedTaskErrors {
 public:
  CountedTaskErrors() {
    set_task_error_callback([this](const TaskError&) { ++count_; });
  }
  CountedTaskErrors(const CountedTaskErrors&) = delete;
  CountedTaskErrors& operator=(const CountedTaskErrors&) = delete;
  ~CountedTaskErrors() { set_task_error_callback({}); }
  [[nodiscard]] int count() const noexcept { return count_.load(); }

 private:
  std::atomic<int> count_{0};
};

Numbers page_of(std::uint32_t number) { return Numbers(1024, number); }

}  // namespace

TEMPLATE_TEST_CASE("Memory of a resource is memory of the client, aligned as it was asked for", "", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Memory<TestType> f;
  const std::size_t before = f.client.memory_usage().bytes_in_use;
  for (const std::size_t alignment : {std::size_t{1}, std::size_t{256}, std::size_t{4096}, std::size_t{65'536}}) {
    void* const pointer = f.resource.allocate(100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0);
    CHECK(f.client.memory_usage().bytes_in_use >= before + 100);
    CHECK(f.resource.handle_of(pointer).size_in_used() == 100);
    CHECK(f.address(f.resource.handle_of(pointer)) == pointer);
    f.resource.deallocate(pointer, 100, alignment);
    CHECK(f.client.memory_usage().bytes_in_use == before);
  }
  CHECK(f.resource.allocate(0) == nullptr);
  CHECK(f.resource.allocate_async(0, f.ref()) == nullptr);
  f.resource.deallocate(nullptr, 0);
  f.resource.deallocate_async(nullptr, 0, f.ref());

  CudaMemoryResource copy = f.resource;
  CHECK(copy == f.resource);
  CHECK(CudaMemoryResource(f.client) != f.resource);
  void* const shared = copy.allocate(64);
  f.resource.deallocate(shared, 64);
  CHECK(f.client.memory_usage().bytes_in_use == before);
#if CCCL_VERSION < 3001000
  mr::async_resource_ref<mr::device_accessible> ref = f.resource;
  void* const erased = ref.allocate_async(64, 256, f.ref());
  ref.deallocate_async(erased, 64, 256, f.ref());
#else
  mr::resource_ref<mr::device_accessible> ref = f.resource;
  void* const erased = ref.allocate(f.ref(), 64, 256);
  ref.deallocate(f.ref(), erased, 64, 256);
#endif
  f.stream.sync();
  CHECK_NOTHROW(settle(f.client));
}

TEMPLATE_TEST_CASE("Memory that one stream has given back is used by another after the work of the first", "",
                   CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Memory<TestType> f;
  ForeignStream other(f.device.device());
  void* const pointer = f.resource.allocate_async(f.bytes, f.ref());
  f.stream.hold();
  f.stream.word(1) = 7;
  f.write(pointer, 1);
  f.resource.deallocate_async(pointer, f.bytes, f.ref());
  REQUIRE(f.resource.allocate_async(f.bytes, {other.native()}) == pointer);  // at once, though the work is not complete
  other.word(1) = 42;
  other.copy_to_device(reinterpret_cast<CUdeviceptr>(pointer), 1);
  f.stream.open();
  other.sync();
  CHECK(f.read(pointer) == 42);
  f.resource.deallocate(pointer, f.bytes);
}

TEMPLATE_TEST_CASE("A buffer of the library gets the memory of a stream after its work", "", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Memory<TestType> f;
  void* const pointer = f.resource.allocate_async(f.bytes, f.ref());
  f.stream.hold();
  f.stream.word(1) = 5;
  f.write(pointer, 1);
  f.resource.deallocate_async(pointer, f.bytes, f.ref());
  const Handle elsewhere = upload(f.client, page_of(9));
  CHECK(f.address(elsewhere) != pointer);
  f.stream.open();
  f.stream.sync();
  CHECK(content(f.client, elsewhere) == page_of(9));
  // A collective or launch on an allocation.
  void* const shared = f.resource.allocate_async(f.bytes, f.ref());
  f.stream.word(1) = 6;
  f.write(shared, 1);
  f.client.ready_after(f.resource.handle_of(shared), f.stream.native());
  const Handle copied = f.client.empty(f.bytes);
  launch(f.client, TestType::copy(f.resource.handle_of(shared), copied));
  CHECK(content(f.client, copied)[0] == 6);
  f.resource.deallocate(shared, f.bytes);
}

TEMPLATE_TEST_CASE("An allocation without a stream returns when the earlier users have completed", "", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Memory<TestType> f;
  std::promise<void*> given_back;
  auto allocation = std::async(std::launch::async, [&] {
    void* const pointer = f.resource.allocate_async(f.bytes, f.ref());
    f.stream.hold();
    f.stream.word(1) = 7;
    f.write(pointer, 1);
    f.resource.deallocate_async(pointer, f.bytes, f.ref());
    given_back.set_value(pointer);
    return f.resource.allocate(f.bytes);
  });
  void* const earlier = given_back.get_future().get();
  while (f.client.memory_usage().bytes_in_use < f.bytes) std::this_thread::yield();  // the pool has given it out again
  for (int pass = 0; pass < 1000; ++pass) f.client.device_handle().submit_blocking([](CudaServer&) {});
  CHECK(allocation.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
  f.stream.open();
  REQUIRE(allocation.get() == earlier);
  ForeignStream other(f.device.device());
  other.word(1) = 42;
  other.copy_to_device(reinterpret_cast<CUdeviceptr>(earlier), 1);
  other.sync();
  CHECK(f.read(earlier) == 42);
  f.resource.deallocate(earlier, f.bytes);
}

TEMPLATE_TEST_CASE("What a memory resource cannot give is an error of that call alone", "", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  using Kind = IoError::Kind;
  Memory<TestType> f;
  CHECK(kind_of<IoError>([&] { static_cast<void>(f.resource.allocate(8, 3)); }) == Kind::Misaligned);
  try {
    static_cast<void>(f.resource.allocate_async(8, 3, f.ref()));
    FAIL();
  } catch (const IoError& error) {
    CHECK(std::string_view(error.site().file_name()) == std::source_location::current().file_name());
  }
  CHECK(kind_of<IoError>([&] {
          static_cast<void>(f.resource.allocate(std::numeric_limits<std::size_t>::max() - 5, 4096));
        }) == Kind::BufferTooBig);
  std::exception_ptr failure;
  try {
    static_cast<void>(f.resource.allocate_async(std::size_t{1} << 50U, f.ref()));
  } catch (...) {
    failure = std::current_exception();
  }
  const auto* const whole = find_cause<Error>(failure);
  REQUIRE(whole != nullptr);
  CHECK(std::string_view(whole->site().file_name()) == std::source_location::current().file_name());
  CHECK((find_cause<IoError>(failure, Kind::OutOfMemory) != nullptr ||
         find_cause<IoError>(failure, Kind::BufferTooBig) != nullptr));
  CHECK(kind_of<IoError>([&] { static_cast<void>(f.resource.handle_of(&f)); }) == Kind::InvalidPointer);
  void* const pointer = f.resource.allocate(f.bytes);
  void* const other = f.resource.allocate(f.bytes);
  CHECK_NOTHROW(settle(f.client));

  shutdown(f.device.device());
  f.resource.deallocate(pointer, f.bytes);
  f.resource.deallocate_async(other, f.bytes, f.ref());
  CHECK(kind_of<CallError>([&] { static_cast<void>(f.resource.allocate(8)); }) == CallError::Kind::Closed);
}

TEMPLATE_TEST_CASE("Others use what was given back after its work or never, whichever call of the driver fails", "",
                   CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  FakeCuda* const fake = find_cuda_stand_in();
  if (fake == nullptr) {
    WARN("skipped: needs the stand-in for the driver");
    return;
  }
  for (const bool by_new_thread : {false, true}) {
    bool has_refused_wait = false;
    for (int calls = 0;; ++calls) {
      const CountedTaskErrors errors;
      Memory<TestType> f;
      ForeignStream other(f.device.device());
      void* const pointer = f.resource.allocate_async(f.bytes, f.ref());
      f.stream.hold();
      f.stream.word(1) = 7;
      f.write(pointer, 1);
      other.word(1) = 42;
      std::string failed;
      void* next = nullptr;
      const auto give_back_and_allocate = [&] {
        {
          const std::lock_guard lock(fake->mutex);
          fake->calls_until_failure = calls;
          fake->failed = nullptr;
        }
        f.resource.deallocate_async(pointer, f.bytes, f.ref());
        f.client.device_handle().submit_blocking([](CudaServer&) {});
        {
          const std::lock_guard lock(fake->mutex);
          fake->calls_until_failure = -1;
          if (fake->failed != nullptr) failed = fake->failed;
        }
        next = f.resource.allocate_async(f.bytes, {other.native()});  // what has failed before does not fail this
      };
      if (by_new_thread) {
        std::thread(give_back_and_allocate).join();
      } else {
        give_back_and_allocate();
      }
      INFO("call " << calls << (by_new_thread ? " of a new thread: " : ": ") << failed << " has failed");
      other.copy_to_device(reinterpret_cast<CUdeviceptr>(next), 1);
      f.stream.open();
      other.sync();
      f.stream.sync();
      CHECK(f.read(next) == 42);
      if (errors.count() != 0) CHECK(next != pointer);
      if (failed.find("cuStreamWaitEvent") != std::string::npos) {
        CHECK(errors.count() == 1);
        has_refused_wait = true;
      }
      f.resource.deallocate(next, f.bytes);
      if (!failed.empty()) continue;
      CHECK(errors.count() == 0);
      if (!by_new_thread) CHECK(next == pointer);
      break;
    }
    CHECK(has_refused_wait);
  }
}
