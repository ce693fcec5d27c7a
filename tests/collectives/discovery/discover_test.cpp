#include <coxswain/collectives/discovery/discover.hpp>
#include <coxswain/tests/collectives/store/plain_listener.hpp>
#include <coxswain/tests/collectives/store/store_contract.hpp>
#include <coxswain/tests/collectives/store/torch_server.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>

using cox::discover;
using cox::WorldOptions;
using cox::WorldPlace;
using cox::test::bytes_of;
using cox::test::far;
using cox::test::get_text;
using cox::test::on_threads;
using cox::test::Variable;

namespace {

/// Three processes find each other, and read what process 0 has published.
void check_meeting(const WorldOptions& options) {
  on_threads(3, [&](std::size_t i) {
    WorldOptions own = options;
    own.process = static_cast<std::uint16_t>(i);
    own.processes = 3;
    const auto store = discover(own).open_store(far());
    REQUIRE(store != nullptr);
    if (i == 0) store->set("leader", bytes_of(options.run), far());
    CHECK(get_text(*store, "leader") == options.run);
    store->close(far());
  });
}

}  // namespace

TEST_CASE("Processes meet at an address, and in a folder") {
  check_meeting({.rendezvous = "tcp://127.0.0.1:" + std::to_string(cox::test::free_port()),
                 .run = "over TCP",
                 .token = "0123456789abcdef0123456789abcdef"});
  const cox::test::TemporaryFolder folder;
  check_meeting({.rendezvous = "file:" + folder.path().string(), .run = "in a folder"});
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("Processes that a shell has started meet over TCP, and in a folder") {
  const cox::test::TemporaryFolder folder;
  for (const std::string& rendezvous :
       {"tcp://127.0.0.1:" + std::to_string(cox::test::free_port()), "file:" + folder.path().string()}) {
    INFO(rendezvous);
    const std::string start =
        "COX_WORLD='" + rendezvous +
        "' COX_WORLD_RUN=shell COX_WORLD_PROCESSES=3 COX_WORLD_PROCESS=$i '" COX_WORLD_STORE_PROGRAM
        "' must >/dev/null & processes=\"$processes $!\";";
    const std::string script = "failed=0; for i in 0 1 2; do " + start +
                               " done; for p in $processes; do wait $p || failed=1; done; exit $failed";
    CHECK(std::system(script.c_str()) == 0);  // NOLINT(concurrency-mt-unsafe)
  }
}

TEST_CASE("A process of torchrun meets the others in the store of its agent") {
  const cox::test::TorchServer agent;
  const Variable rank("RANK", "1");
  const Variable size("WORLD_SIZE", "2");
  const Variable host("MASTER_ADDR", "127.0.0.1");
  const Variable port("MASTER_PORT", std::to_string(agent.port()));
  const Variable run("TORCHELASTIC_RUN_ID", "none");
  const Variable has_store("TORCHELASTIC_USE_AGENT_STORE", "True");
  const WorldPlace place = discover();
  CHECK(place.source == WorldPlace::Source::Torchrun);
  const auto store = place.open_store(far());
  store->set("k", bytes_of("v"), far());
  CHECK(get_text(*place.open_store(far()), "k") == "v");
}

TEST_CASE("The place has the name of the host, and the time to wait of the setting or the options") {
  const WorldPlace place = discover();
  CHECK_FALSE(place.host.empty());
  CHECK(place.timeout == std::chrono::minutes(5));
  const Variable timeout("COX_WORLD_TIMEOUT", "7s");
  CHECK(discover().timeout == std::chrono::seconds(7));
  CHECK(discover({.timeout = std::chrono::seconds(2)}).timeout == std::chrono::seconds(2));
}
