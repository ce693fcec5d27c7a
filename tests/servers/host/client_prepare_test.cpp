#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cox;

namespace {

/// Everything that was done with a kernel, in order.
struct Record {
  std::mutex mutex;
  std::vector<std::pair<std::string, std::thread::id>> steps;  // guarded by mutex
  DeviceId device;

  void add(const char* step) {
    const std::lock_guard lock(mutex);
    steps.emplace_back(step, std::this_thread::get_id());
  }
};

/// A kernel that has to be prepared, as those of GPUs have.
class PreparedKernel : public HostKernel {
 public:
  explicit PreparedKernel(std::shared_ptr<Record> record)
      : HostKernel("prepared", {}, 0, [](const KernelContext&) {}), record_(std::move(record)) {}
  void prepare(DeviceId device) const noexcept {
    record_->device = device;
    record_->add("prepare");
  }
  [[nodiscard]] Record& record() const noexcept { return *record_; }

 private:
  std::shared_ptr<Record> record_;
};

class PreparingServer : public HostServer {
 public:
  using Kernel = PreparedKernel;
  using HostServer::HostServer;

  [[nodiscard]] std::shared_ptr<const ServerUtilities<PreparingServer>> utilities() const {
    const auto host = HostServer::utilities();
    auto ours = std::shared_ptr<ServerUtilities<PreparingServer>>(new ServerUtilities<PreparingServer>{
        {.owner = host->owner, .properties = host->properties, .completion_thread = host->completion_thread},
        host->info,
        host->layout_policy});
    return ours;
  }
  void launch(PreparedKernel kernel, const CubeCount& count, const LaunchArguments& arguments, ExecutionMode mode,
              const Caller& caller, SubmitMode when) {
    kernel.record().add("launch");
    HostServer::launch(kernel, count, arguments, mode, caller, when);
  }
};

static_assert(ComputeServer<PreparingServer>);

}  // namespace

TEST_CASE("A launch prepares its kernel first, on the client's thread, if the kernel is one to be prepared") {
  const DeviceId device{host_device_type, 1};
  {
    const auto client = ComputeClient<PreparingServer>::load(device);
    const auto record = std::make_shared<Record>();
    const PreparedKernel kernel(record);
    client.launch(kernel, CubeCount::of_1d(0), {});
    CHECK(record->steps.empty());  // no work, nothing to prepare
    client.launch(kernel, CubeCount::single(), {});
    client.sync().get();
    REQUIRE(record->steps.size() == 2);
    CHECK(record->steps[0].first == "prepare");
    CHECK(record->steps[0].second == std::this_thread::get_id());
    CHECK(record->steps[1].first == "launch");
    CHECK(record->steps[1].second != std::this_thread::get_id());
    CHECK(record->device == device);
  }
  shutdown(device);
}
