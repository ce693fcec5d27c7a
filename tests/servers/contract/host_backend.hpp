#pragma once

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/servers/contract/open_device.hpp>
#include <coxswain/tests/servers/host/open_host.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cox::test {

/// Host devices.
struct HostBackend {
  using Server = HostServer;
  using Client = HostClient;
  using Kernel = HostKernel;
  using Work = test::Work<HostKernel>;

  static constexpr std::uint16_t device_type = host_device_type;
  /// Bytes of the smallest device: memory comes in pieces of it.
  static constexpr std::size_t min_memory = std::size_t{4} << 10U;
  /// Bytes of a device that hands its memory out in pieces of a thousandth.
  static constexpr std::size_t fine_memory = std::size_t{64} << 20U;
  /// Bytes of staging memory, at least.
  static constexpr std::size_t min_pinned = std::size_t{64} << 10U;
  /// What tells how long work takes.
  static constexpr TimingMethod timing = TimingMethod::System;
  /// All threads of the process are the library's and the test's.
  static constexpr bool threads_are_counted = true;
  /// A graph that was dropped is there, and counted, until its replays have run.
  static constexpr bool graphs_stay_for_replays = true;
  /// Random programs are of so many steps for every ten.
  static constexpr std::size_t program_length = 10;

  [[nodiscard]] static std::string missing_devices(std::size_t) { return {}; }
  [[nodiscard]] static std::size_t device_count(const DeviceOptions& options) { return options.devices; }
  static void set_options(const DeviceOptions& options) {
    set_host_options({.device_count = options.devices,
                      .threads_per_device = options.threads,
                      .memory_capacity = options.memory,
                      .pinned_capacity = options.pinned});
  }
  static void reset_options() { reset_host_options(); }
  static void prepare(DeviceId) {}
  /// A device that handles of the first are foreign to.
  static constexpr DeviceId elsewhere{.type = host_device_type, .index = 1};

  // Memory itself
  // ---------------------------------------------------------------------------------------------------------------

  [[nodiscard]] static std::uintptr_t address(std::span<std::byte> resource) {
    return reinterpret_cast<std::uintptr_t>(resource.data());
  }
  [[nodiscard]] static std::size_t size(std::span<std::byte> resource) { return resource.size(); }
  /// What is at the address, not by way of its handle.
  [[nodiscard]] static Bytes peek(const Client&, std::span<std::byte> resource) { return Bytes::copy_of(resource); }
  static void poke(const Client&, std::span<std::byte> resource, const std::vector<std::byte>& bytes) {
    std::ranges::copy(bytes, resource.begin());
  }

  // The vocabulary: elements are std::uint32_t
  // ---------------------------------------------------------------------------------------------------------------

  /// Every element of `data` becomes `value`. Kernel "fill", with cubes of one unit.
  [[nodiscard]] static Work fill(const Handle& data, std::uint32_t value) {
    return {fill_kernel(), KernelArguments{}.with_buffer(data).with_scalar(value)};
  }
  /// `to` becomes as many elements of `from`, which is only read.
  [[nodiscard]] static Work copy(const Handle& from, const Handle& to) { return {copy_kernel(), both(from, to)}; }
  /// `to` becomes its sum with `from`, which is only read.
  [[nodiscard]] static Work add_to(const Handle& from, const Handle& to) {
    return {{"add_to",
             {},
             2,
             [](const KernelContext& context) {
               const auto in = context.buffer<const std::uint32_t>(0);
               const auto out = context.buffer<std::uint32_t>(1);
               for (std::size_t i = 0; i < out.size(); ++i) out[i] += in[i];
             }},
            both(from, to)};
  }
  /// `to` becomes `from` plus one; `from` is only read.
  [[nodiscard]] static Work plus_one(const Handle& from, const Handle& to) {
    return {{"plus_one",
             {},
             2,
             [](const KernelContext& context) {
               const auto in = context.buffer<const std::uint32_t>(0);
               const auto out = context.buffer<std::uint32_t>(1);
               for (std::size_t i = 0; i < out.size(); ++i) out[i] = in[i] + 1;
             }},
            both(from, to)};
  }
  /// `to` becomes `left` plus `right`, which are only read.
  [[nodiscard]] static Work add(const Handle& left, const Handle& right, const Handle& to) {
    return {{"add",
             {},
             3,
             [](const KernelContext& context) {
               const auto first = context.buffer<const std::uint32_t>(0);
               const auto second = context.buffer<const std::uint32_t>(1);
               const auto out = context.buffer<std::uint32_t>(2);
               for (std::size_t i = 0; i < out.size(); ++i) out[i] = first[i] + second[i];
             }},
            KernelArguments{}.with_buffer(left, Access::Read).with_buffer(right, Access::Read).with_buffer(to)};
  }
  /// Each element becomes `factor` times itself plus `summand`, one element a unit, in cubes of 32.
  [[nodiscard]] static Work multiply_add(const Handle& data, std::uint32_t factor, std::uint32_t summand) {
    const std::size_t elements = data.size_in_used() / sizeof(std::uint32_t);
    return {test::multiply_add(), KernelArguments{}.with_buffer(data).with_scalar(factor).with_scalar(summand),
            CubeCount::of_1d(static_cast<std::uint32_t>((elements + 31) / 32))};
  }
  /// Element i becomes what unit i, of cubes of (2, 2, 1), knows of itself: x + 10 y + 100 z of its cube, and 1000
  /// times its number in the cube.
  [[nodiscard]] static Work indices(const Handle& data, CubeCount count) {
    return {{"indices",
             {2, 2, 1},
             1,
             [](const KernelContext& context) {
               const auto out = context.buffer<std::uint32_t>(0);
               const auto [x, y, z] = context.cube_index();
               context.for_each_unit([&, cube = x + 10 * y + 100 * z](std::uint64_t unit) {
                 out[unit] = cube + 1000 * static_cast<std::uint32_t>(unit - context.first_unit());
               });
             }},
            KernelArguments{}.with_buffer(data),
            std::move(count)};
  }
  /// Kernel "nothing", which takes no buffers and does nothing.
  [[nodiscard]] static Work nothing(CubeDim dim = CubeDim::single()) {
    return {{"nothing", dim, 0, [](const KernelContext&) {}}};
  }
  /// Kernel "misused" takes three buffers, and is given none: found when it is queued.
  [[nodiscard]] static Work misused() {
    return {{"misused", {}, 3, [](const KernelContext&) {}}};
  }
  /// A kernel that no device can run, given too little besides.
  [[nodiscard]] static Work impossible() { return {{"impossible", {}, 5, nullptr}}; }
  /// Fails when it is its turn, with late_kind and a text that has late_text.
  [[nodiscard]] static Work fail_after_submit(const Client&) {
    return {{"late", {}, 0, [](const KernelContext&) { throw std::runtime_error(late_text); }}};
  }
  /// As fail_after_submit, and should have written `data`.
  [[nodiscard]] static Work fail_on(const Client&, const Handle& data) {
    return {{"late", {}, 1, [](const KernelContext&) { throw std::runtime_error(late_text); }},
            KernelArguments{}.with_buffer(data)};
  }
  /// As misused, and should have written `data`.
  [[nodiscard]] static Work misused_on(const Handle& data) {
    return {{"misused", {}, 3, [](const KernelContext&) {}}, KernelArguments{}.with_buffer(data)};
  }
  static constexpr LaunchError::Kind late_kind = LaunchError::Kind::KernelFailed;
  static constexpr const char* late_text = "as it should";

  /// Work that the test holds up: it runs, and waits for open(), before it does anything. One launch of each gate.
  class Gate {
   public:
    explicit Gate(const Client&) {}
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    ~Gate() { open(); }

    [[nodiscard]] Work hold() { return {gate_.kernel(0)}; }
    /// With a buffer that it does not look at.
    [[nodiscard]] Work hold(const Handle& data, Access access = Access::Write) {
      return {gate_.kernel(1), KernelArguments{}.with_buffer(data, access)};
    }
    [[nodiscard]] Work fill(const Handle& data, std::uint32_t value) {
      return {gate_.kernel(1,
                           [value](const auto& context) {
                             for (auto& element : context.template buffer<std::uint32_t>(0)) element = value;
                           }),
              KernelArguments{}.with_buffer(data)};
    }
    [[nodiscard]] Work copy(const Handle& from, const Handle& to) {
      return {gate_.kernel(2, copy_kernel().function()), both(from, to)};
    }
    /// seen() is the sum of the elements then.
    [[nodiscard]] Work sum(const Handle& data, Access access = Access::Read) {
      return {gate_.kernel(1,
                           [seen = seen_](const auto& context) {
                             std::uint32_t sum = 0;
                             for (const auto value : context.template buffer<const std::uint32_t>(0)) sum += value;
                             *seen = sum;
                           }),
              KernelArguments{}.with_buffer(data, access)};
    }
    /// Blocks until it runs.
    void wait_until_entered() { gate_.wait_until_entered(); }
    void open() {
      if (!std::exchange(opened_, true)) gate_.open();
    }
    /// After its stream has passed it.
    [[nodiscard]] std::uint32_t seen() const { return *seen_; }

   private:
    test::Gate gate_;
    bool opened_ = false;
    std::shared_ptr<std::atomic<std::uint32_t>> seen_ = std::make_shared<std::atomic<std::uint32_t>>(0);
  };

 private:
  static KernelArguments both(const Handle& from, const Handle& to) {
    return KernelArguments{}.with_buffer(from, Access::Read).with_buffer(to);
  }
};

}  // namespace cox::test
