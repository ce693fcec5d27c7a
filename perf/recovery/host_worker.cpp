#include <coxswain/perf/recovery/host_worker.hpp>

#include <coxswain/perf/recovery/contents.hpp>
#include <coxswain/perf/recovery/worker.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <stdexcept>

namespace cox::perf {

void run_host_worker(const RecoveryOptions& options, const Journal& journal, const sigset_t& signals) {
  const Contents contents{.words = options.bytes / sizeof(std::uint64_t),
                          .slice_words = options.step_bytes / sizeof(std::uint64_t)};
  WorkerDevices<HostClient> devices;
  for (const DeviceId device : options.devices) devices.clients.push_back(HostClient::load(device));
  journal.report(Moment::Opened);
  journal.report(Moment::Prepared);
  devices.write = [&](std::size_t device, const Handle& memory, Access access, Contents::Part part,
                      std::uint64_t update) {
    devices.clients[device].call(KernelArguments().with_buffer(memory, access), [=](std::span<void* const> pointers) {
      auto* const words = static_cast<std::uint64_t*>(pointers[0]);
      for (std::uint64_t at = part.first; at < part.first + part.count; ++at)
        words[at] = contents.word(at, update, device);
    });
  };
  devices.count_wrong = [&](std::size_t device, const Handle& memory, std::uint64_t update) {
    const HostClient& client = devices.clients[device];
    const Handle result = client.empty(sizeof(std::uint64_t));
    client.call(KernelArguments().with_buffer(memory, Access::Read).with_buffer(result, Access::Overwrite),
                [=](std::span<void* const> pointers) {
                  const auto* const words = static_cast<const std::uint64_t*>(pointers[0]);
                  std::uint64_t wrong = 0;
                  for (std::uint64_t at = 0; at < contents.words; ++at)
                    if (words[at] != contents.word(at, update, device)) ++wrong;
                  *static_cast<std::uint64_t*>(pointers[1]) = wrong;
                });
    return client.read_one(result).to_vector<std::uint64_t>()[0];
  };
  devices.fail = [](Cause) { throw std::logic_error("host devices have no faults"); };
  Worker<HostClient>(options, contents, journal, devices).run_to_end(signals, [](int code) { return code; });
}

}  // namespace cox::perf
