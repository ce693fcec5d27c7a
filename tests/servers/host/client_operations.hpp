#pragma once

#include <coxswain/tests/servers/host/open_host.hpp>

#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/memory/memory_report.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

inline constexpr std::size_t elements = 1000;
inline constexpr std::size_t windows = 10;         // more than kernel arguments hold without an allocation
inline constexpr std::size_t readers_at_once = 6;  // more than the waits of a piece of work

inline std::vector<std::uint32_t> numbers_from(std::uint32_t first) {
  std::vector<std::uint32_t> values(elements);
  std::iota(values.begin(), values.end(), first);
  return values;
}
inline const std::vector<std::uint32_t>& before() {
  static const auto values = numbers_from(0);
  return values;
}
inline const std::vector<std::uint32_t>& given() {
  static const auto values = numbers_from(5000);
  return values;
}

/// A device with one thread for its streams, and some streams.
struct Stage {
  OpenHost host{{.device_count = 1, .threads_per_device = 1}};
  HostClient client = host.on_new_stream();
  HostClient other = host.on_new_stream();
  HostClient holder = host.on_new_stream();
  std::vector<HostClient> readers = [this] {
    std::vector<HostClient> clients;
    for (std::size_t i = 0; i < readers_at_once; ++i) clients.push_back(host.on_new_stream());
    return clients;
  }();
};

/// Two streams, and a buffer that both use.
struct Scene {
  /// `fresh`: on streams that have never had an error, nor waited for anything.
  Scene(const Stage& stage, bool fresh)
      : client(fresh ? stage.host.on_new_stream() : stage.client),
        other(fresh ? stage.host.on_new_stream() : stage.other) {}

  HostClient client;
  HostClient other;
  Handle data = upload(client, before());
  Handle count = upload(client, {32, 1, 1});
  HostKernel kernel = multiply_add();
  HostKernel throwing{"throwing", {}, 1, [](const cox::KernelContext&) { throw std::runtime_error("as it should"); }};
  HostKernel many{"many", {}, windows, [](const cox::KernelContext& context) {
                    for (std::size_t i = 0; i < windows; ++i) context.buffer<std::uint32_t>(i)[0] += 7;
                  }};
};

/// What an operation is given, and what it brings.
struct Attempt {
  Bytes upload;
  Handle made;
  MemoryLayout tensor;
  Future<std::vector<Bytes>> read;
  Future<void> met;
  Bytes found;
};

struct Operation {
  const char* name;
  bool blocks;
  void (*call)(const Scene&, Attempt&);
  /// Whether it has brought what it should. Throws what has become of it instead.
  bool (*right)(const Scene&, Attempt&);
};

inline KernelArguments three_times_plus_one(const Handle& data) {
  return KernelArguments{}.with_buffer(data).with_scalar(std::uint32_t{3}).with_scalar(std::uint32_t{1});
}
inline bool is_three_times_plus_one(const Scene& scene) {
  const auto found = numbers(scene.client.read_one(scene.data));
  return std::ranges::equal(found, before(), {}, {}, [](std::uint32_t value) { return 3 * value + 1; });
}
inline bool data_is_given(const Scene& scene, Attempt&) {
  return numbers(scene.client.read_one(scene.data)) == given();
}
inline bool is_done(const Scene& scene, Attempt&) {
  scene.client.sync().get();
  return true;
}

/// All that a client can ask of a device.
inline constexpr std::array operations{
    Operation{"create", false, [](const Scene& s, Attempt& a) { a.made = s.client.create(std::move(a.upload)); },
              [](const Scene& s, Attempt& a) { return numbers(s.client.read_one(a.made)) == given(); }},
    Operation{"create_tensor", false,
              [](const Scene& s, Attempt& a) { a.tensor = s.client.create_tensor(std::move(a.upload), {40, 25}, 4); },
              [](const Scene& s, Attempt& a) {
                return numbers(s.client.read_one_tensor(a.tensor.copy_descriptor({40, 25}, 4))) == given();
              }},
    Operation{"create_tensors", false,
              [](const Scene& s, Attempt& a) {
                std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> tensors;
                tensors.emplace_back(MemoryLayoutDescriptor::optimized({40, 25}, 4), std::move(a.upload));
                tensors.emplace_back(MemoryLayoutDescriptor::contiguous({3}, 1), Bytes::zeroed(3));
                a.tensor = s.client.create_tensors(std::move(tensors))[0];
              },
              [](const Scene& s, Attempt& a) {
                return numbers(s.client.read_one_tensor(a.tensor.copy_descriptor({40, 25}, 4))) == given();
              }},
    Operation{"empty", false, [](const Scene& s, Attempt& a) { a.made = s.client.empty(4 * elements); },
              [](const Scene& s, Attempt& a) {
                s.client.write(a.made, std::move(a.upload));
                return numbers(s.client.read_one(a.made)) == given();
              }},
    Operation{"write", false, [](const Scene& s, Attempt& a) { s.client.write(s.data, std::move(a.upload)); },
              data_is_given},
    Operation{"write_tensor", false,
              [](const Scene& s, Attempt& a) {
                s.client.write_tensor(s.data.copy_descriptor({10, 100}, {100, 1}, 4), std::move(a.upload));
              },
              data_is_given},
    Operation{
        "launch", false,
        [](const Scene& s, Attempt&) { s.client.launch(s.kernel, CubeCount::of_1d(32), three_times_plus_one(s.data)); },
        [](const Scene& s, Attempt&) { return is_three_times_plus_one(s); }},
    Operation{"launch, count from the device", false,
              [](const Scene& s, Attempt&) {
                s.client.launch(s.kernel, CubeCount::dynamic(s.count), three_times_plus_one(s.data));
              },
              [](const Scene& s, Attempt&) { return is_three_times_plus_one(s); }},
    Operation{"launch on many windows", false,
              [](const Scene& s, Attempt&) {
                KernelArguments arguments;
                for (std::size_t i = 0; i < windows; ++i)
                  arguments = std::move(arguments).with_buffer(s.data.offset_start(4 * i));
                s.client.launch(s.many, CubeCount::single(), std::move(arguments));
              },
              [](const Scene& s, Attempt&) {
                auto expected = before();
                for (std::size_t i = 0; i < windows; ++i) expected[i] += 7;
                return numbers(s.client.read_one(s.data)) == expected;
              }},
    Operation{"launch that fails", false,
              [](const Scene& s, Attempt&) {
                s.client.launch(s.throwing, CubeCount::single(), KernelArguments{}.with_buffer(s.data));
              },
              [](const Scene& s, Attempt&) {
                try {
                  s.client.sync().get();
                } catch (const cox::ServerError& error) {
                  if (std::string(error.what()).find("as it should") != std::string::npos) return true;
                  throw;
                }
                return false;
              }},
    Operation{"read_async", false,
              [](const Scene& s, Attempt& a) { a.read = s.client.read_async(std::vector<Handle>{s.data, s.count}); },
              [](const Scene&, Attempt& a) { return numbers(a.read.get()[0]) == before(); }},
    Operation{"read_tensor_async", false,
              [](const Scene& s, Attempt& a) {
                a.read = s.client.read_tensor_async({s.data.copy_descriptor({10, 50}, {100, 1}, 4)});
              },
              [](const Scene&, Attempt& a) { return a.read.get()[0].size() == 2000; }},
    Operation{"sync", false, [](const Scene& s, Attempt& a) { a.met = s.client.sync(); },
              [](const Scene&, Attempt& a) {
                a.met.get();
                return true;
              }},
    Operation{"memory_cleanup", false, [](const Scene& s, Attempt&) { s.client.memory_cleanup(); }, is_done},
    Operation{"read", true, [](const Scene& s, Attempt& a) { a.found = s.client.read_one(s.data); },
              [](const Scene&, Attempt& a) { return numbers(a.found) == before(); }},
    Operation{"flush", true, [](const Scene& s, Attempt&) { s.client.flush(); }, is_done},
    Operation{"memory_usage", true, [](const Scene& s, Attempt&) { (void)s.client.memory_usage(); }, is_done},
    Operation{"memory_report", true, [](const Scene& s, Attempt&) { (void)s.client.memory_report(); }, is_done},
};

}  // namespace cox::test
