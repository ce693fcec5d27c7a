// The comparison of kept memory with its checksums, in the process that opens it: under a keeper of this process.
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/tools/process_keeper.hpp>

#include <sys/mman.h>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

using cox::Bytes;
using cox::DeviceId;
using cox::HostClient;
using cox::KeeperConnection;
using cox::KeptError;
using cox::KeptMode;
using cox::KeptOptions;
using cox::KeptPieces;
using cox::KeptSet;
using cox::KeptState;
using cox::tools::ProcessKeeper;

namespace {

constexpr std::source_location checksum_site = std::source_location::current();
const std::vector<std::uint64_t> first_values{1, 2, 3, 4};

/// One process with a set of two allocations on each of two devices.
class CheckedProgram {
 public:
  explicit CheckedProgram(const std::string& set, const KeptOptions& options)
      : set_((ProcessKeeper::get(), set), ids(), options) {
    for (const DeviceId id : ids()) clients_.push_back(HostClient::load(id));
  }
  CheckedProgram(const CheckedProgram&) = delete;
  CheckedProgram& operator=(const CheckedProgram&) = delete;
  ~CheckedProgram() {
    clients_.clear();
    for (const DeviceId id : ids()) cox::shutdown(id);
  }

  static std::vector<DeviceId> ids() { return {{cox::host_device_type, 0}, {cox::host_device_type, 1}}; }
  void open(const std::string& name) {
    for (const HostClient& client : clients_) static_cast<void>(client.kept(set_, name, 4 * sizeof(std::uint64_t)));
  }
  void update() {
    for (const HostClient& client : clients_) {
      client.begin_update(set_);
      for (const char* const name : {"a", "b"})
        client.write(client.kept_next(set_, name), Bytes::copy_of(first_values));
      client.commit(set_);
    }
    for (const HostClient& client : clients_) client.sync().get();
  }
  [[nodiscard]] KeptState state() const { return set_.state(); }
  [[nodiscard]] std::vector<std::uint64_t> values(std::size_t device, const std::string& name) {
    return clients_[device].read_one(clients_[device].kept_current(set_, name)).to_vector<std::uint64_t>();
  }

 private:
  KeptSet set_;
  std::vector<HostClient> clients_;
};

/// Changes one bit of held memory while no process has it open.
void damage(const std::string& set, const KeptOptions& options, const std::string& device, const std::string& name) {
  KeeperConnection other(ProcessKeeper::get().path(), checksum_site);
  const std::string mode = options.mode == KeptMode::Double ? "double" : "in place";
  static_cast<void>(other.open(set, options.schema, mode + ", 2 devices", checksum_site));
  const KeptPieces pieces = other.take(set, device, name, 0, checksum_site);
  void* const memory =
      mmap(nullptr, pieces.sizes[0], PROT_READ | PROT_WRITE, MAP_SHARED, pieces.descriptors[0].get(), 0);
  REQUIRE(memory != MAP_FAILED);
  static_cast<unsigned char*>(memory)[9] ^= 0x10U;
  munmap(memory, pieces.sizes[0]);
  other.close(set);
  // Its answer comes after the close, for which nothing else waits.
  CHECK_THROWS_AS(other.found(set, 0, checksum_site), KeptError);
}

}  // namespace

TEST_CASE("Memory that differs from its checksum is reported by name and poisoned; the rest can be read") {
  cox::set_host_device_count(2);
  for (const KeptMode mode : {KeptMode::InPlace, KeptMode::Double}) {
    const KeptOptions options{.mode = mode, .checksum_every = 2};
    const std::string name = mode == KeptMode::Double ? "damaged twice" : "damaged";
    {
      CheckedProgram program(name, options);
      program.open("a");
      program.open("b");
      CHECK(program.state().kind == KeptState::Kind::Empty);
      program.update();
      program.update();
    }
    {
      CheckedProgram program(name, options);
      program.open("a");
      CHECK_THROWS_AS(program.state(), KeptError);  // not before all of it could be compared
      program.open("b");
      const KeptState state = program.state();
      CHECK(state.to_string() == "whole at epoch 2");
      CHECK(program.values(1, "b") == first_values);
    }
    // The second commit has written the first copy again.
    damage(name, options, "host:1", mode == KeptMode::Double ? "b/0" : "b");
    {
      CheckedProgram program(name, options);
      program.open("a");
      program.open("b");
      const KeptState state = program.state();
      CHECK(state.kind == KeptState::Kind::Corrupt);
      CHECK(state.to_string() == "corrupt at epoch 2: 'b' on host:1");
      CHECK(state.devices[0].epoch == 2);
      CHECK(state.devices[1].epoch == 0);
      CHECK(program.values(0, "b") == first_values);
      CHECK(program.values(1, "a") == first_values);
      CHECK_THROWS(program.values(1, "b"));
      program.update();  // writes all of it: heals
      CHECK(program.values(1, "b") == first_values);
    }
    CheckedProgram program(name, options);
    program.open("a");
    program.open("b");
    // The only commit of the last process has made none.
    const KeptState state = program.state();
    CHECK(state.to_string() == "whole at epoch 3, not checked");
    CHECK(state.devices[0].not_checked == std::vector<std::string>{"a", "b"});
  }
}

TEST_CASE("Without checksums damaged memory is not found") {
  cox::set_host_device_count(2);
  {
    CheckedProgram program("unchecked", {});
    program.open("a");
    program.open("b");
    program.update();
  }
  damage("unchecked", {}, "host:0", "a");
  CheckedProgram program("unchecked", {});
  program.open("a");
  program.open("b");
  CHECK(program.state().to_string() == "whole at epoch 1");
  CHECK(program.values(0, "a") != first_values);
}
