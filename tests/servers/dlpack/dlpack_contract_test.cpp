// Tensors of other libraries by DLPack, on devices of any kind: from_dlpack, to_dlpack.

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/dlpack_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/poison_contract.hpp>
#include <coxswain/tests/servers/dlpack/foreign_tensor.hpp>
#include <coxswain/tests/support/failing_allocation.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;
using namespace cox::test;

namespace {

using Values = std::vector<std::uint32_t>;
constexpr std::size_t word = sizeof(std::uint32_t);

/// A device, and memory of 64 words that belongs to another library and holds 0, 1, 2, ...
template <class Backend>
struct Exchange {
  OpenDevice<Backend> device;
  typename Backend::Client& client = device.client();
  typename Backend::Client other = device.on_new_stream();
  ForeignMemory<Backend> memory{device.device(), 64 * word};
  Consumer<Backend> consumer{device.device()};

  Exchange() {
    client.write(client.borrow(memory.data(), 64 * word), Bytes::copy_of(counted(64)));
    client.sync().get();
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  /// The memory is freed when the device is closed.
  ~Exchange() { shutdown(device.device()); }

  [[nodiscard]] std::unique_ptr<ForeignTensor> tensor(std::vector<std::int64_t> shape,
                                                      std::optional<std::vector<std::int64_t>> strides = {},
                                                      std::size_t words = 0) const {
    return ForeignTensor::make(device.device(), static_cast<std::byte*>(memory.data()) + words * word, std::move(shape),
                               std::move(strides));
  }
  [[nodiscard]] std::uintptr_t address(const Handle& handle) const {
    return Backend::address(client.get_resource(handle).resource);
  }
  [[nodiscard]] std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(memory.data()); }
  /// What the other library sees.
  [[nodiscard]] Values seen() const { return content(client, client.borrow(memory.data(), 64 * word)); }
};

template <class Client>
Values tensor_content(const Client& client, const TensorView& tensor) {
  return numbers(client.read_one_tensor(tensor.copy_descriptor()));
}

void drop(DLManagedTensorVersioned* tensor) { tensor->deleter(tensor); }

}  // namespace

TEMPLATE_TEST_CASE("A tensor of another library is used in place", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  const bool with_strides = GENERATE(false, true);
  auto foreign = with_strides ? f.tensor({2, 3}, {{3, 1}}) : f.tensor({2, 3});
  const auto deletions = foreign->deletions;
  {
    const TensorView tensor = imported(f.client, foreign);
    CHECK(tensor.shape == Shape{2, 3});
    CHECK(tensor.strides == Strides{3, 1});
    CHECK(tensor.type == ElementType::U32);
    CHECK(tensor.memory.size_in_used() == 6 * word);
    CHECK(f.address(tensor.memory) == f.address());
    CHECK(tensor_content(f.client, tensor) == Values{0, 1, 2, 3, 4, 5});
    launch(f.client, TestType::fill(tensor.memory, 9));
    f.client.sync().get();
    CHECK(deletions->count.load() == 0);
  }
  deletions->wait();
  const Values seen = f.seen();
  CHECK(Values(seen.begin(), seen.begin() + 7) == Values{9, 9, 9, 9, 9, 9, 6});
}

TEMPLATE_TEST_CASE("A tensor that is a view is imported as one", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  const auto check_view = [&](std::unique_ptr<ForeignTensor> foreign, std::size_t first, std::size_t words,
                              const Strides& strides) {
    const auto deletions = foreign->deletions;
    {
      const TensorView tensor = imported(f.client, foreign);
      CHECK(tensor.strides == strides);
      CHECK(f.address(tensor.memory) == f.address() + first * word);
      REQUIRE(tensor.memory.size_in_used() == words * word);
      const Values all = counted(64);
      CHECK(content(f.client, tensor.memory) == Values(all.begin() + static_cast<std::ptrdiff_t>(first),
                                                       all.begin() + static_cast<std::ptrdiff_t>(first + words)));
    }
    deletions->wait();
  };
  SECTION("by an offset") {
    auto foreign = f.tensor({2, 3});
    foreign->managed.dl_tensor.byte_offset = 5 * word;
    check_view(std::move(foreign), 5, 6, {3, 1});
  }
  SECTION("by its pointer") { check_view(f.tensor({2, 3}, {}, 7), 7, 6, {3, 1}); }
  SECTION("by both") {
    auto foreign = f.tensor({4}, {}, 1);
    foreign->managed.dl_tensor.byte_offset = 2 * word;
    check_view(std::move(foreign), 3, 4, {1});
  }
  SECTION("transposed") { check_view(f.tensor({3, 2}, {{1, 3}}), 0, 6, {1, 3}); }
  SECTION("with padded rows") {
    check_view(f.tensor({2, 3}, {{8, 1}}, 1), 1, 11, {8, 1});
    auto foreign = f.tensor({2, 3}, {{8, 1}}, 1);
    const TensorView tensor = imported(f.client, foreign);
    CHECK(tensor_content(f.client, tensor) == Values{1, 2, 3, 9, 10, 11});
    f.client.write_tensor(tensor.copy_descriptor(), Bytes::copy_of(Values{70, 71, 72, 73, 74, 75}));
    const Values seen = f.seen();
    CHECK(Values(seen.begin(), seen.begin() + 13) == Values{0, 70, 71, 72, 4, 5, 6, 7, 8, 73, 74, 75, 12});
  }
  SECTION("with strides that no access uses") {
    check_view(f.tensor({1, 4}, {{-7, 1}}), 0, 4, {4, 1});
    check_view(f.tensor({4, 1}, {{1, 0}}), 0, 4, {1, 1});
  }
  SECTION("of rank 0") {
    auto foreign = f.tensor({}, {}, 6);
    foreign->managed.dl_tensor.shape = nullptr;
    check_view(std::move(foreign), 6, 1, {});
  }
}

TEMPLATE_TEST_CASE("An empty tensor has no memory, and its deleter is called soon", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  auto foreign = f.tensor({2, 0, 3}, {{-1, 0, 0}});
  const auto deletions = foreign->deletions;
  if (GENERATE(false, true)) foreign->managed.dl_tensor.data = nullptr;
  const TensorView tensor = imported(f.client, foreign);
  deletions->wait();
  CHECK(tensor.shape == Shape{2, 0, 3});
  CHECK(tensor.memory.size_in_used() == 0);
  CHECK(tensor_content(f.client, tensor).empty());
  DLManagedTensorVersioned* const exported = f.consumer.get(f.client, tensor);
  CHECK(exported->dl_tensor.data == nullptr);
  CHECK(exported->dl_tensor.shape[1] == 0);
  drop(exported);
}

TEMPLATE_TEST_CASE("The deleter of a tensor is called once, after its last use", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  auto foreign = f.tensor({4});
  const auto deletions = foreign->deletions;
  SECTION("unused") {
    static_cast<void>(imported(f.client, foreign));
    deletions->wait();
  }
  SECTION("dropped while work runs") {
    typename TestType::Gate gate(f.client);
    {
      const TensorView tensor = imported(f.client, foreign);
      launch(f.client, gate.fill(tensor.memory, 7));
      gate.wait_until_entered();
    }
    reach(f.client);
    reach(f.client);
    CHECK(deletions->count.load() == 0);
    gate.open();
    deletions->wait();
  }
  SECTION("at the shutdown of the device") {
    const TensorView tensor = imported(f.client, foreign);
    launch(f.client, TestType::fill(tensor.memory, 7));
    shutdown(f.device.device());
    deletions->wait();
  }
  SECTION("or there is none") {
    foreign->managed.deleter = nullptr;
    const TensorView tensor = from_dlpack(f.client, &foreign->managed);
    CHECK(content(f.client, tensor.memory) == Values{0, 1, 2, 3});
    shutdown(f.device.device());
  }
}

TEMPLATE_TEST_CASE("A tensor that cannot be imported stays the caller's", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  // Changes a tensor of four rows of four, with strides.
  const auto refused = [&](const std::function<void(ForeignTensor&)>& change) {
    auto foreign = f.tensor({4, 4}, {{4, 1}});
    change(*foreign);
    std::string refusal = "none";
    try {
      static_cast<void>(from_dlpack(f.client, &foreign->managed));
    } catch (const DlpackError& error) {
      refusal = to_string(error.kind());
    } catch (const IoError& error) {
      refusal = to_string(error.kind());
    }
    f.client.sync().get();
    CHECK(foreign->deletions->count.load() == 0);
    return refusal;
  };
  const auto of_device = [&](DLDeviceType type, std::int32_t index) {
    return refused([=](ForeignTensor& t) { t.managed.dl_tensor.device = {type, index}; });
  };
  const auto of_type = [&](int code, int bits, int lanes) {
    return refused([=](ForeignTensor& t) {
      t.managed.dl_tensor.dtype = {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits),
                                   static_cast<std::uint16_t>(lanes)};
    });
  };
  const auto of_strides = [&](std::int64_t outer, std::int64_t inner) {
    return refused([=](ForeignTensor& t) {
      t.strides = {outer, inner};
      t.managed.dl_tensor.strides = t.strides->data();
    });
  };
  SECTION("of another version") {
    CHECK(refused([](ForeignTensor& t) { t.managed.version.major = 2; }) == "unsupported_version");
    CHECK(refused([](ForeignTensor& t) { t.managed.version.major = 0; }) == "unsupported_version");
  }
  SECTION("of another device") {
    const bool on_host = TestType::device_type == 0;
    CHECK(of_device(on_host ? kDLCUDA : kDLCPU, 0) == "wrong_device");
    CHECK(of_device(kDLCUDAHost, 0) == "wrong_device");
    CHECK(of_device(kDLCUDAManaged, 0) == "wrong_device");
    CHECK(of_device(on_host ? kDLCPU : kDLCUDA, 1) == "wrong_device");
  }
  SECTION("read-only") {
    CHECK(refused([](ForeignTensor& t) { t.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY; }) == "read_only");
  }
  SECTION("of a type that the library does not have") {
    CHECK(of_type(kDLFloat, 32, 2) == "unsupported_type");
    CHECK(of_type(kDLFloat, 32, 0) == "unsupported_type");
    CHECK(of_type(kDLFloat, 128, 1) == "unsupported_type");
    CHECK(of_type(kDLComplex, 64, 1) == "unsupported_type");
    CHECK(of_type(kDLInt, 4, 1) == "unsupported_type");
    CHECK(of_type(8, 8, 1) == "unsupported_type");  // e4m3 with infinities
    CHECK(of_type(kDLOpaqueHandle, 64, 1) == "unsupported_type");
  }
  SECTION("of no proper shape") {
    CHECK(refused([](ForeignTensor& t) { t.shape[1] = -1; }) == "invalid_shape");
    CHECK(refused([](ForeignTensor& t) { t.managed.dl_tensor.ndim = -1; }) == "invalid_shape");
    CHECK(refused([](ForeignTensor& t) { t.managed.dl_tensor.shape = nullptr; }) == "invalid_shape");
    CHECK(refused([](ForeignTensor& t) {
            t.shape = {INT64_MAX, 4};
            t.managed.dl_tensor.shape = t.shape.data();
          }) == "invalid_shape");
  }
  SECTION("with elements that may overlap") {
    CHECK(of_strides(-4, 1) == "unsupported_strides");
    CHECK(of_strides(4, -1) == "unsupported_strides");
    CHECK(of_strides(0, 1) == "unsupported_strides");
    CHECK(of_strides(3, 1) == "unsupported_strides");
    CHECK(of_strides(1, 1) == "unsupported_strides");
    CHECK(of_strides(INT64_MAX, 1) == "unsupported_strides");
  }
  SECTION("with memory that cannot be borrowed") {
    CHECK(refused([](ForeignTensor& t) { t.managed.dl_tensor.data = nullptr; }) == "invalid_pointer");
    CHECK(refused([](ForeignTensor& t) { t.managed.dl_tensor.byte_offset = 2; }) == "misaligned");
    CHECK(refused([](ForeignTensor& t) { t.managed.dl_tensor.byte_offset = UINT64_MAX - 3; }) == "out_of_bounds");
    CHECK(kind_of<IoError>([&] { static_cast<void>(from_dlpack(f.client, nullptr)); }) ==
          IoError::Kind::InvalidPointer);
    if (TestType::device_type != 0) CHECK(refused([](ForeignTensor& t) { t.shape[0] = 1000; }) == "out_of_bounds");
  }
  SECTION("when the device is shut down") {
    const bool is_empty = GENERATE(false, true);
    shutdown(f.device.device());
    auto foreign = f.tensor({is_empty ? 0 : 4});
    CHECK_THROWS_AS(from_dlpack(f.client, &foreign->managed), CallError);
    CHECK(foreign->deletions->count.load() == 0);
  }
}

TEMPLATE_TEST_CASE("Each allocation of an import may fail: the tensor stays the caller's", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  const bool is_empty = GENERATE(false, true);
  int failures = 0;
  for (bool failed = true; failed;) {
    auto foreign = f.tensor({is_empty ? 0 : 2, 1, 1, 1, 1, 1, 1, 2});  // longer than a Shape holds without allocating
    const auto deletions = foreign->deletions;
    TensorView tensor;
    allocations_until_failure = failures;
    try {
      tensor = from_dlpack(f.client, &foreign->managed);
      failed = false;
    } catch (const std::bad_alloc&) {
    }
    allocations_until_failure = -1;
    f.client.sync().get();
    if (failed) {
      ++failures;
      REQUIRE(deletions->count.load() == 0);
      REQUIRE(failures < 100);
    } else {
      static_cast<void>(foreign.release());
      tensor = {};
      deletions->wait();
    }
  }
  CHECK(failures > 2);
}

TEMPLATE_TEST_CASE("A tensor is exported in place", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  Handle memory = upload(f.client, counted(32));
  const std::uintptr_t address = f.address(memory);
  TensorView tensor{memory.offset_start(4 * word), {2, 3}, {8, 1}, ElementType::U32};
  const bool writable = GENERATE(false, true);
  DLManagedTensorVersioned* const exported = f.consumer.get(f.client, tensor, writable ? Access::Write : Access::Read);
  tensor = {};
  REQUIRE(exported != nullptr);
  CHECK(exported->version.major == 1);
  CHECK(exported->flags == (writable ? 0U : DLPACK_FLAG_BITMASK_READ_ONLY));
  const DLTensor& it = exported->dl_tensor;
  CHECK(reinterpret_cast<std::uintptr_t>(it.data) == address + 4 * word);
  CHECK(it.byte_offset == 0);
  CHECK(it.device.device_type == (TestType::device_type == 0 ? kDLCPU : kDLCUDA));
  CHECK(it.device.device_id == 0);
  REQUIRE(it.ndim == 2);
  CHECK(std::vector(it.shape, it.shape + 2) == std::vector<std::int64_t>{2, 3});
  CHECK(std::vector(it.strides, it.strides + 2) == std::vector<std::int64_t>{8, 1});
  CHECK((it.dtype.code == kDLUInt && it.dtype.bits == 32 && it.dtype.lanes == 1));
  CHECK_FALSE(memory.can_mut());  // the tensor keeps it
  std::thread([exported] { drop(exported); }).join();
  CHECK(memory.can_mut());
  CHECK(content(f.client, memory) == counted(32));
  f.client.sync().get();
}

TEMPLATE_TEST_CASE("An exported tensor keeps its memory until its deleter is called", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  const auto allocations = [&] { return f.client.memory_usage().number_allocs; };
  const auto before = allocations();
  DLManagedTensorVersioned* const exported =
      f.consumer.get(f.client, TensorView::contiguous(upload(f.client, counted(8)), {8}, ElementType::U32));
  f.client.sync().get();
  CHECK(allocations() == before + 1);
  SECTION("while the device is open") {
    drop(exported);
    f.client.sync().get();
    CHECK(allocations() == before);
  }
  SECTION("which may be called after the shutdown of the device") {
    shutdown(f.device.device());
    drop(exported);
  }
}

TEMPLATE_TEST_CASE("Every element type is the same there and back", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  const Handle memory = f.client.borrow(f.memory.data(), 4 * word);
  for (const ElementTypeFacts& facts : element_types) {
    INFO(facts.name);
    DLManagedTensorVersioned* const exported =
        f.consumer.get(f.client, TensorView::contiguous(memory, {2}, facts.type));
    CHECK(exported->dl_tensor.dtype.bits == 8 * facts.size);
    CHECK(from_dlpack(f.client, exported).type == facts.type);
  }
}

TEMPLATE_TEST_CASE("A tensor that is imported and exported belongs to both until both drop it", "[dlpack]",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  auto foreign = f.tensor({3, 2}, {{1, 3}}, 1);
  const auto deletions = foreign->deletions;
  TensorView tensor = imported(f.client, foreign);
  launch(f.client, TestType::fill(tensor.memory, 5));
  DLManagedTensorVersioned* const exported = f.consumer.get(f.client, tensor);
  CHECK(reinterpret_cast<std::uintptr_t>(exported->dl_tensor.data) == f.address() + word);
  CHECK(std::vector(exported->dl_tensor.strides, exported->dl_tensor.strides + 2) == std::vector<std::int64_t>{1, 3});
  tensor = {};
  f.client.sync().get();
  CHECK(deletions->count.load() == 0);
  // Once more into the library, as the tensor of the consumer.
  tensor = from_dlpack(f.client, exported);
  CHECK(content(f.client, tensor.memory) == Values(6, 5));
  CHECK(deletions->count.load() == 0);
  tensor = {};
  deletions->wait();
}

TEMPLATE_TEST_CASE("What cannot be exported is refused", "[dlpack]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  const Handle memory = upload(f.client, counted(8));
  const auto io = [&](const TensorView& tensor) {
    return kind_of<IoError>([&] { static_cast<void>(f.consumer.get(f.client, tensor)); });
  };
  const auto dlpack = [&](const TensorView& tensor) {
    return kind_of<DlpackError>([&] { static_cast<void>(f.consumer.get(f.client, tensor)); });
  };
  CHECK(io({memory, {3, 3}, {3, 1}, ElementType::U32}) == IoError::Kind::OutOfBounds);
  CHECK(io({memory.offset_start(4), {8}, {1}, ElementType::U32}) == IoError::Kind::OutOfBounds);
  CHECK(io({memory, {2, 3}, {1}, ElementType::U32}) == IoError::Kind::RankMismatch);
  CHECK(io({{}, {2}, {1}, ElementType::U32}) == IoError::Kind::NotFound);
  CHECK(dlpack({memory, {2, 2}, {0, 1}, ElementType::U32}) == DlpackError::Kind::UnsupportedStrides);
  CHECK(dlpack({memory, {2, 0}, {SIZE_MAX, 1}, ElementType::U32}) == DlpackError::Kind::InvalidShape);
  CHECK(memory.can_mut());

  f.client.graph_prepare();
  f.client.graph_start_capture();
  CHECK(kind_of<ServerError>([&] {
          static_cast<void>(f.consumer.get(f.client, TensorView::contiguous(memory, {8}, ElementType::U32)));
        }) == ServerError::Kind::Graph);
  try {
    static_cast<void>(f.client.graph_stop_capture());
  } catch (const ServerError&) {
  }
  CHECK(content(f.client, memory) == counted(8));
  shutdown(f.device.device());
  CHECK_THROWS_AS(f.consumer.get(f.client, TensorView::contiguous(memory, {8}, ElementType::U32)), CallError);
}

TEMPLATE_TEST_CASE("L14: poisoned memory is not exported", "[dlpack][poison]", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  const Handle memory = upload(f.client, {1, 2, 3, 4});
  launch(f.client, TestType::fail_on(f.client, memory));
  if (GENERATE(false, true)) CHECK(is_late_failure<TestType>(next_failure(f.client)));
  const Access access = GENERATE(Access::Read, Access::Write);
  std::exception_ptr error;
  try {
    static_cast<void>(f.consumer.get(f.other, TensorView::contiguous(memory, {4}, ElementType::U32), access));
  } catch (const IoError&) {
    error = std::current_exception();
  }
  CHECK(is_poisoned_by_late_failure<TestType>(error));
  static_cast<void>(next_failure(f.client));
  CHECK(next_failure(f.other) == nullptr);
}

TEST_CASE("A tensor is exported to the CPU when the work on its memory is complete", "[dlpack]") {
  Exchange<HostBackend> f;
  const Handle memory = upload(f.client, {1, 2, 3, 4});
  const Handle result = upload(f.client, {0, 0, 0, 0});
  f.client.sync().get();
  const TensorView tensor = TensorView::contiguous(memory, {4}, ElementType::U32);
  const bool reads = GENERATE(false, true);
  HostBackend::Gate gate(f.client);
  launch(f.client, reads ? gate.copy(memory, result) : gate.fill(memory, 7));
  gate.wait_until_entered();
  // For a consumer that only reads, reads of the library need not be complete.
  if (reads) drop(f.consumer.get(f.other, tensor, Access::Read));
  auto exported = std::async(std::launch::async, [&] {
    DLManagedTensorVersioned* const got = f.consumer.get(f.other, tensor);
    Values values(4);
    std::memcpy(values.data(), got->dl_tensor.data, 4 * word);
    drop(got);
    return values;
  });
  CHECK(exported.wait_for(std::chrono::milliseconds(20)) == std::future_status::timeout);
  gate.open();
  CHECK(exported.get() == (reads ? Values{1, 2, 3, 4} : Values{7, 7, 7, 7}));
}

#if COX_CUDA_TESTS
TEMPLATE_TEST_CASE("An imported tensor waits for its producer's stream", "[dlpack]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  ForeignStream& stream = f.consumer.stream;
  stream.hold();
  stream.word(1) = 42;
  stream.copy_to_device(f.memory.address() + 8, 1);
  auto foreign = f.tensor({3}, {}, 1);
  const auto deletions = foreign->deletions;
  {
    const TensorView tensor = from_dlpack(f.client, &foreign->managed, stream.native());
    static_cast<void>(foreign.release());
    auto read = f.client.read_async(std::vector<Handle>{tensor.memory});
    get_soon(f.client.issued());
    CHECK(deletions->count.load() == 0);
    stream.open();
    CHECK(numbers(get_soon(std::move(read))[0]) == Values{1, 42, 3});
  }
  deletions->wait();
}

TEMPLATE_TEST_CASE("A consumer's stream waits for the work on an exported tensor, and later work for the stream",
                   "[dlpack]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  ForeignStream& stream = f.consumer.stream;
  const Handle memory = upload(f.client, {1, 2, 3, 4});
  f.client.sync().get();
  typename TestType::Gate gate(f.client);
  launch(f.client, gate.fill(memory, 7));
  // Does not wait for the work itself.
  DLManagedTensorVersioned* const exported =
      f.consumer.get(f.other, TensorView::contiguous(memory, {4}, ElementType::U32));
  const auto address = reinterpret_cast<CUdeviceptr>(exported->dl_tensor.data);
  stream.copy_to_host(1, address);
  gate.open();
  stream.sync();
  CHECK(stream.word(1) == 7);

  // The deleter is called while the consumer's work is held up.
  stream.hold();
  stream.copy_to_host(2, address);
  drop(exported);
  launch(f.client, TestType::fill(memory, 9));
  get_soon(f.client.issued());
  CHECK(read_soon<std::uint32_t>(f.other, upload(f.other, {1})) == Values{1});  // time for the fill, if it did not wait
  stream.open();
  CHECK(content(f.client, memory) == Values{9, 9, 9, 9});
  stream.sync();
  CHECK(stream.word(2) == 7);
}

TEMPLATE_TEST_CASE("A tensor is not exported to a stream that cannot wait", "[dlpack]", CudaBackend) {
  COX_REQUIRE_DEVICES(TestType, 1);
  Exchange<TestType> f;
  const TensorView tensor = TensorView::contiguous(upload(f.client, counted(4)), {4}, ElementType::U32);
  CHECK_THROWS_AS(to_dlpack(f.client, tensor, CU_STREAM_PER_THREAD), ServerError);
  CHECK(tensor.memory.can_mut());
}
#endif
