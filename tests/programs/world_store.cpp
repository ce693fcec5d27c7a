// Each process of a world publishes and reads through its store, under any launcher; without one it is a world of one.
// The test "pmix" runs two of it under orterun.
#include <coxswain/collectives/discovery/discover.hpp>
#include <coxswain/collectives/store/store_error.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::chrono::seconds longest{60};

void require(bool so, const char* what) {
  if (so) return;
  std::fprintf(stderr, "failed: %s\n", what);
  throw cox::Error(what);
}

std::string get_text(cox::Store& store, std::string_view key) {
  const std::vector<std::byte> value = store.get(key, std::chrono::steady_clock::now() + longest);
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

template <class F>
cox::StoreError::Kind kind_of(F&& f) {
  try {
    f();
  } catch (const cox::StoreError& error) {
    std::printf("%s\n", error.what());
    return error.kind();
  }
  throw cox::Error("there was no error");
}

void check_pmix(cox::Store& store, const cox::WorldPlace& place) {
  const auto deadline = std::chrono::steady_clock::now() + longest;
  const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  using Kind = cox::StoreError::Kind;
  require(place.rendezvous.kind == cox::Rendezvous::Kind::Pmix, "the rendezvous is PMIx");
  require(place.local_process == place.process && place.local_processes == place.processes, "all are on this host");
  require(kind_of([&] { (void)store.get("absent", soon); }) == Kind::Timeout, "an absent key is a Timeout");
  require(kind_of([&] { store.add("n", 1, deadline); }) == Kind::Unsupported, "add is Unsupported");
  require(kind_of([&] { store.compare_set("k", {}, {}, deadline); }) == Kind::Unsupported,
          "compare_set is Unsupported");
  if (place.process != 0)
    require(kind_of([&] { store.set("k", {}, deadline); }) == Kind::Unsupported, "set of another is Unsupported");
}

}  // namespace

int main(int argc, char**) {
  try {
    const cox::WorldPlace place = cox::discover();
    const auto deadline = std::chrono::steady_clock::now() + longest;
    const auto store = place.open_store(deadline);
    if (store == nullptr) {
      require(place.processes == 1 && argc == 1, "a world of one has no store");
      return 0;
    }
    const std::string longest_value(cox::Store::max_value, 'x');
    if (place.process == 0) {
      store->set("leader", std::as_bytes(std::span(place.run)), deadline);
      store->set("long", std::as_bytes(std::span(longest_value)), deadline);
    }
    require(get_text(*store, "leader") == place.run, "the value of process 0 is read");
    require(get_text(*store, "long") == longest_value, "a value of 1 MiB is read");
    if (place.source == cox::WorldPlace::Source::Pmix) check_pmix(*store, place);
    store->close(deadline);
    std::printf("process %u of %u has met the others\n", place.process, place.processes);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
