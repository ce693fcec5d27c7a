#include <coxswain/tests/runtime/thrown.hpp>
#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>

#include <coxswain/device_handle/base/call_error.hpp>
#include <coxswain/runtime/error/io_error.hpp>

#include <boost/asio/use_future.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <span>
#include <utility>
#include <vector>

using namespace cox::test;
using cox::Bytes;
using cox::CubeCount;
using cox::Handle;
using cox::IoError;
using cox::MemoryLayoutDescriptor;
using cox::Shape;

namespace {

struct Tensor {
  Shape shape;
  std::size_t elem_size;
  std::size_t bytes;  ///< dense
  bool padded;        ///< on the device
};

}  // namespace

TEMPLATE_TEST_CASE("Tensors of every rank and element size come back dense, padded on the device or not", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const std::vector<Tensor> tensors{
      {{}, 4, 4, false},          {{}, 24, 24, false},         {{5}, 4, 20, false},       {{3, 5}, 4, 60, true},
      {{4, 128}, 4, 2048, false}, {{2, 3, 5}, 4, 120, true},   {{2, 3, 1}, 4, 24, false}, {{2, 2, 3, 7}, 2, 168, true},
      {{3, 5}, 24, 360, true},    {{2, 3}, 1000, 6000, false}, {{0}, 4, 0, false},        {{2, 0}, 4, 0, false},
      {{0, 5}, 4, 0, false},      {{2, 0, 3}, 32, 0, false}};
  for (const Tensor& tensor : tensors) {
    INFO("rank " << tensor.shape.size() << ", " << tensor.elem_size << " B an element, " << tensor.bytes << " B");
    const Bytes first = Bytes::copy_of(pattern(tensor.bytes));
    const Bytes second = Bytes::copy_of(pattern(tensor.bytes, 1));
    const auto layout = client.create_tensor(first.share(), tensor.shape, tensor.elem_size);
    const auto descriptor = [&] { return layout.copy_descriptor(tensor.shape, tensor.elem_size); };
    if (tensor.padded) CHECK(layout.memory.size_in_used() > tensor.bytes);
    CHECK(client.read_one_tensor(descriptor()) == first);
    client.write_tensor(descriptor(), second.share());
    CHECK(client.read_tensor({descriptor(), descriptor()})[1] == second);
    CHECK(client.read_lazy(descriptor()) == second);
    const auto from_slice = client.create_tensor_from_slice(first.span(), tensor.shape, tensor.elem_size);
    CHECK(client.read_one_tensor_async(from_slice.copy_descriptor(tensor.shape, tensor.elem_size)).get()[0] == first);
    const auto empty = client.empty_tensor(tensor.shape, tensor.elem_size);
    CHECK(empty.strides == layout.strides);
    CHECK(client.read_one_tensor(empty.copy_descriptor(tensor.shape, tensor.elem_size)).size() == tensor.bytes);
  }
}

TEMPLATE_TEST_CASE(
    "Tensors made from slices together have their content, and the slices are the caller's again at once", "",
    COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  auto matrix = pattern(60);
  auto row = pattern(7, 1);
  typename TestType::Gate gate(client);
  launch(client, gate.hold());
  const auto layouts = client.create_tensors_from_slices(
      {{MemoryLayoutDescriptor::optimized({3, 5}, 4), matrix}, {MemoryLayoutDescriptor::contiguous({7}, 1), row}});
  matrix.assign(60, std::byte{0});
  row.assign(7, std::byte{0});
  gate.open();
  REQUIRE(layouts.size() == 2);
  CHECK(client.read_one_tensor(layouts[0].copy_descriptor({3, 5}, 4)) == Bytes::copy_of(pattern(60)));
  CHECK(client.read_one(layouts[1].memory) == Bytes::copy_of(pattern(7, 1)));
  CHECK(client.memory_usage().number_allocs == 1);
}

TEMPLATE_TEST_CASE("A few bytes are read as they are, whatever they are", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  // The second is what the words of a small read are before it on GPUs: see SmallRead.
  for (const std::uint32_t word : {0U, 0x7FA5'C3E1U, ~0U}) {
    std::vector<std::byte> content(128);
    for (std::size_t i = 0; i < content.size(); ++i) {
      const std::uint32_t mixed = i % 12 < 4 ? static_cast<std::uint32_t>(i) : word;
      content[i] = static_cast<std::byte>(mixed >> (i % 4 * 8));
    }
    const Handle all = client.create(Bytes::copy_of(content));
    for (std::size_t size = 0; size <= 68; ++size)
      for (const std::size_t offset : {0U, 1U, 2U, 4U, 6U, 33U}) {
        const Handle part = all.offset_start(offset).offset_end(content.size() - offset - size);
        const std::span<const std::byte> expected = std::span(content).subspan(offset, size);
        INFO(size << " bytes from " << offset << " on, of " << word);
        REQUIRE(client.read_one(part) == Bytes::copy_of(expected));
      }
  }
}

TEMPLATE_TEST_CASE("A small read has what was written last, each time", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Handle number = upload(client, {0});
  std::vector<cox::Future<std::vector<Bytes>>> later;
  for (std::uint32_t i = 1; i <= 200; ++i) {
    launch(client, TestType::fill(number, i));
    if (i % 2 == 0) {
      REQUIRE(content(client, number) == std::vector<std::uint32_t>{i});
    } else {
      later.push_back(client.read_async({number}));  // some are dropped, some asked for late
      if (i % 3 == 0) later.pop_back();
    }
  }
  std::uint32_t last = 0;
  for (auto& future : later) {
    const auto found = future.get().front().template to_vector<std::uint32_t>();
    REQUIRE(found.size() == 1);
    CHECK(found.front() % 2 == 1);
    CHECK(found.front() > last);
    last = found.front();
  }
}

TEMPLATE_TEST_CASE("One read has tensors of different layouts, in the order asked for", "", COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const auto matrix = client.create_tensor(Bytes::copy_of(pattern(60)), {3, 5}, 4);
  const auto scalar = client.create_tensor(Bytes::copy_of(pattern(8, 1)), {}, 8);
  const auto nothing = client.create_tensor(Bytes(), {0, 4}, 4);
  const auto read = client.read_tensor({scalar.copy_descriptor({}, 8), nothing.copy_descriptor({0, 4}, 4),
                                        matrix.copy_descriptor({3, 5}, 4), scalar.copy_descriptor({}, 8)});
  REQUIRE(read.size() == 4);
  CHECK(read[0] == Bytes::copy_of(pattern(8, 1)));
  CHECK(read[1].empty());
  CHECK(read[2] == Bytes::copy_of(pattern(60)));
  CHECK(read[3] == read[0]);
  CHECK(client.read_tensor({}).empty());
}

TEMPLATE_TEST_CASE("Reads of tensors complete futures and Asio tokens, and do not wait for the stream", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Bytes content = Bytes::copy_of(pattern(60));
  const auto layout = client.create_tensor(content.share(), {3, 5}, 4);
  const auto descriptor = [&] { return layout.copy_descriptor({3, 5}, 4); };
  typename TestType::Gate gate(client);
  launch(client, gate.hold());
  auto one = client.read_one_tensor_async(descriptor());
  auto several = client.read_tensor_async({descriptor(), descriptor()});
  std::future<std::vector<Bytes>> used = client.read_one_tensor_async(descriptor(), boost::asio::use_future);
  std::promise<std::vector<Bytes>> handled;
  client.read_tensor_async({descriptor()}, [&](std::exception_ptr error, std::vector<Bytes> bytes) {
    if (error) return handled.set_exception(error);
    handled.set_value(std::move(bytes));
  });
  std::promise<std::exception_ptr> failed;
  client.read_one_tensor_async(layout.memory.copy_descriptor({3, 5}, {5}, 4),
                               [&](std::exception_ptr error, std::vector<Bytes>) { failed.set_value(error); });
  CHECK_FALSE(one.ready());
  CHECK_FALSE(several.ready());
  gate.open();
  CHECK(one.get()[0] == content);
  CHECK(several.get()[1] == content);
  CHECK(used.get()[0] == content);
  CHECK(handled.get_future().get()[0] == content);
  CHECK(kind_of<IoError>([&] { std::rethrow_exception(failed.get_future().get()); }) == IoError::Kind::RankMismatch);
}

TEMPLATE_TEST_CASE("L10: lazy bytes of any stream and device can be uploaded, and no one waits for himself", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> here;
  std::optional<OpenDevice<TestType>> there;  // where there is another
  if (TestType::device_count({}) > 1) there.emplace(DeviceOptions{}, 1);
  const Bytes content = Bytes::copy_of(pattern(3000));
  const auto& client = here.client();
  std::vector sources{here.client(), here.on_new_stream()};
  if (there) sources.insert(sources.end(), {there->client(), there->on_new_stream()});
  for (const auto& source : sources) {
    const Handle data = source.create(content.share());
    const auto padded = source.create_tensor(content.share(), {100, 30}, 1);
    const auto tensor = padded.copy_descriptor({100, 30}, 1);
    CHECK(client.read_one(client.create(source.read_lazy(data))) == content);
    CHECK(client.read_one(client.create(source.read_lazy(data).slice(7, 100))) == content.slice(7, 100));
    const auto copy = client.create_tensor(source.read_lazy(tensor), {30, 100}, 1);
    CHECK(client.read_one_tensor(copy.copy_descriptor({30, 100}, 1)) == content);
    const Handle target = client.empty(3000);
    client.write(target, source.read_lazy(data));
    CHECK(client.read_one(target) == content);
    std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> tensors;
    tensors.emplace_back(MemoryLayoutDescriptor::optimized({100, 30}, 1), source.read_lazy(tensor));
    CHECK(client.read_one_tensor(client.create_tensors(std::move(tensors))[0].copy_descriptor({100, 30}, 1)) ==
          content);
  }
  const Handle own = client.create(content.share());
  client.write(own, client.read_lazy(own));
  CHECK(client.read_one(own) == content);
}

TEMPLATE_TEST_CASE("L10: lazy bytes are uploaded inside exclusive, and refused in a task that they would wait for", "",
                   COX_BACKENDS) {
  COX_REQUIRE_DEVICES(TestType, 1);
  OpenDevice<TestType> device;
  const auto& client = device.client();
  const Bytes content = Bytes::copy_of(pattern(300));
  const Handle data = client.create(content.share());
  CHECK(client.exclusive([&] { return client.read_one(client.create(client.read_lazy(data))); }) == content);
  const auto inside = client.device_handle().submit_blocking([&](typename TestType::Server&) {
    return kind_of<cox::CallError>([&] { (void)client.create(client.read_lazy(data)); });
  });
  CHECK(inside == cox::CallError::Kind::WouldDeadlock);
}
