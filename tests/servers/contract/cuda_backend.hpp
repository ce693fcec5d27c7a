#pragma once

#include <coxswain/runtime/error/launch_error.hpp>
#include <coxswain/runtime/profile/profile_duration.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tests/servers/contract/open_device.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cox::test {

/// GPUs. Says what HostBackend says, which see.
struct CudaBackend {
  using Server = CudaServer;
  using Client = CudaClient;
  using Kernel = CudaKernel;
  using Work = test::Work<CudaKernel>;

  static constexpr std::uint16_t device_type = cuda_device_type;
  static constexpr std::size_t min_memory = std::size_t{2} << 20U;
  static constexpr std::size_t fine_memory = std::size_t{2} << 30U;
  static constexpr std::size_t min_pinned = std::size_t{2} << 20U;
  static constexpr TimingMethod timing = TimingMethod::Device;
  static constexpr bool threads_are_counted = false;
  static constexpr bool graphs_stay_for_replays = false;
  static constexpr std::size_t program_length = 5;

  [[nodiscard]] static std::string missing_devices(std::size_t count);
  [[nodiscard]] static std::size_t device_count(const DeviceOptions&) { return enumerate_cuda_devices().size(); }
  static void set_options(const DeviceOptions& options);
  static void reset_options();
  static void prepare(DeviceId device);
  static constexpr DeviceId elsewhere{.type = 0, .index = 0};  // a host device

  [[nodiscard]] static std::uintptr_t address(const CudaResource& resource) { return resource.address; }
  [[nodiscard]] static std::size_t size(const CudaResource& resource) { return resource.size; }
  [[nodiscard]] static Bytes peek(const Client& client, const CudaResource& resource);
  static void poke(const Client& client, const CudaResource& resource, const std::vector<std::byte>& bytes);

  [[nodiscard]] static Work fill(const Handle& data, std::uint32_t value);
  [[nodiscard]] static Work copy(const Handle& from, const Handle& to);
  [[nodiscard]] static Work add_to(const Handle& from, const Handle& to);
  [[nodiscard]] static Work plus_one(const Handle& from, const Handle& to);
  [[nodiscard]] static Work add(const Handle& left, const Handle& right, const Handle& to);
  [[nodiscard]] static Work multiply_add(const Handle& data, std::uint32_t factor, std::uint32_t summand);
  [[nodiscard]] static Work indices(const Handle& data, CubeCount count);
  [[nodiscard]] static Work nothing(CubeDim dim = CubeDim::single());
  [[nodiscard]] static Work misused();
  [[nodiscard]] static Work impossible();
  /// A cube count that only the GPU knows, and cannot run.
  [[nodiscard]] static Work fail_after_submit(const Client& client);
  [[nodiscard]] static Work fail_on(const Client& client, const Handle& data);
  [[nodiscard]] static Work misused_on(const Handle& data);
  static constexpr LaunchError::Kind late_kind = LaunchError::Kind::TooManyResources;
  static constexpr const char* late_text = "cube count";

  /// A kernel that looks at a word of page-locked memory until the test has written it.
  class Gate {
   public:
    explicit Gate(const Client& client);
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    /// Blocks until the kernel has run, which it does now.
    ~Gate();

    [[nodiscard]] Work hold();
    [[nodiscard]] Work hold(const Handle& data, Access access = Access::Write);
    [[nodiscard]] Work fill(const Handle& data, std::uint32_t value);
    [[nodiscard]] Work copy(const Handle& from, const Handle& to);
    [[nodiscard]] Work sum(const Handle& data, Access access = Access::Read);
    void wait_until_entered();
    /// Throws std::runtime_error if the kernel was tired of waiting: somebody waited for it in vain.
    void open();
    [[nodiscard]] std::uint32_t seen() const;

   private:
    struct Words {  // as the kernels know them
      std::uint32_t entered;
      std::uint32_t open;
      std::uint32_t left;
      std::uint32_t sum;
    };
    [[nodiscard]] Work work(const CudaKernel& kernel, KernelArguments arguments);

    Bytes memory_;
    Words* words_ = nullptr;  // in memory_
    bool launched_ = false;
  };
};

}  // namespace cox::test
