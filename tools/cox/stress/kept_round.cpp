#include <coxswain/tools/cox/stress/kept_round.hpp>

#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tools/cox/device_list.hpp>

#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace cox::stress {
namespace {

constexpr std::size_t kept_members = 3;

// The word that the update of that epoch writes there.
std::uint64_t kept_word(std::uint64_t epoch, std::uint64_t place, std::size_t index) {
  return Random::derived(epoch, place * 0x100000001U + index);
}

// One of the two sets, on all devices.
class StressedSet {
 public:
  StressedSet(const KeptStress& options, const std::vector<HostClient>& clients, KeptMode mode,
              std::uint64_t checksum_every)
      : options_(options),
        clients_(clients),
        number_(mode == KeptMode::Double ? 1 : 0),
        set_(mode == KeptMode::Double ? "two copies" : "in place", options.devices,
             {.schema = "cox stress, seed " + std::to_string(options.seed),
              .mode = mode,
              .checksum_every = checksum_every}) {
    Random sizes(Random::derived(options.seed, number_));
    for (std::size_t i = 0; i < kept_members; ++i)
      words_.push_back(options.payload.pick(sizes) / sizeof(std::uint64_t) + 1);
    for (const HostClient& client : clients_)
      for (std::size_t i = 0; i < kept_members; ++i)
        static_cast<void>(client.kept(set_, name_of(i), words_[i] * sizeof(std::uint64_t)));
    state_ = set_.state();
    last_epoch_ = state_.last_epoch;
  }

  // Compares the memory with what the state says.
  void check(KeptBook& book) {
    using Kind = KeptState::Kind;
    (state_.kind == Kind::Empty   ? book.empty
     : state_.kind == Kind::Whole ? book.whole
     : state_.kind == Kind::Torn  ? book.torn
                                  : book.corrupt)
        .fetch_add(1);
    const std::uint64_t synced = book.synced[number_].load();
    const auto wrong = [&](const std::string& why) {
      book.add_wrong("the set '" + set_.name() + "' is reported as " + state_.to_string() + " after update " +
                     std::to_string(synced) + ": " + why);
    };
    if (state_.kind == Kind::Corrupt) return wrong("nothing has written it");
    if (state_.kind == Kind::Empty && synced != 0) return wrong("an update has ended");
    if (state_.kind == Kind::Whole && state_.epoch < synced) return wrong("a later update has ended");
    if (state_.kind == Kind::Torn && set_.mode() == KeptMode::Double && synced != 0) return wrong("it has two copies");
    bool partly = false;
    for (std::size_t device = 0; device < clients_.size(); ++device) {
      const KeptState::Device& found = state_.devices[device];
      partly = partly || !found.not_checked.empty();
      if (const std::string why = lack_of(device, found); !why.empty()) return wrong(why);
    }
    if (state_.kind == Kind::Whole && partly) book.not_checked.fetch_add(1);
  }

  void update() {
    const std::uint64_t epoch = ++last_epoch_;
    for (std::size_t device = 0; device < clients_.size(); ++device) {
      const HostClient& client = clients_[device];
      client.begin_update(set_, epoch);
      for (std::size_t i = 0; i < kept_members; ++i) write(device, i, epoch, Access::Overwrite);
      const std::uint64_t value = kept_word(epoch, device, kept_members);
      client.commit(set_, std::as_bytes(std::span(&value, 1)));
      if (options_.flawed)
        for (std::size_t i = 0; i < kept_members; ++i) write(device, i, epoch + 1, Access::Read);
    }
  }
  // All devices have made the updates so far.
  void note_synced(KeptBook& book) const {
    book.updates.fetch_add(last_epoch_ - book.synced[number_].exchange(last_epoch_));
  }

 private:
  static std::string name_of(std::size_t member) { return "member " + std::to_string(member); }

  // What of the device is not as its state says; an empty text: nothing.
  [[nodiscard]] std::string lack_of(std::size_t device, const KeptState::Device& found) {
    const bool is_whole = state_.kind == KeptState::Kind::Whole;
    const HostClient& client = clients_[device];
    const std::string on = " on " + tools::device_name(found.device);
    for (std::size_t i = 0; i < kept_members; ++i) {
      const Handle& memory = client.kept_current(set_, name_of(i));
      if (found.epoch == 0) {
        if (state_.kind == KeptState::Kind::Torn && can_be_read(client, memory)) return "torn memory can be read" + on;
        continue;
      }
      const auto bytes = client.read_one(memory);
      for (std::size_t at = 0; at < words_[i]; ++at) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.span().data() + at * sizeof(word), sizeof(word));
        if (word != kept_word(found.epoch, device * kept_members + i, at))
          return "word " + std::to_string(at) + " of " + name_of(i) + on + " is not that of epoch " +
                 std::to_string(found.epoch);
      }
    }
    if (!is_whole) return {};
    const std::uint64_t value = kept_word(state_.epoch, device, kept_members);
    if (!found.values || found.values->size() != sizeof(value) ||
        std::memcmp(found.values->data(), &value, sizeof(value)) != 0)
      return "the values" + on + " are not those of the epoch";
    return {};
  }

  static bool can_be_read(const HostClient& client, const Handle& memory) {
    try {
      static_cast<void>(client.read_one(memory));
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void write(std::size_t device, std::size_t member, std::uint64_t epoch, Access access) {
    const std::uint64_t place = device * kept_members + member;
    clients_[device].call(KernelArguments().with_buffer(clients_[device].kept_next(set_, name_of(member)), access),
                          [count = words_[member], place, epoch](std::span<void* const> pointers) {
                            auto* const words = static_cast<volatile std::uint64_t*>(pointers[0]);
                            for (std::size_t i = 0; i < count; ++i) words[i] = kept_word(epoch, place, i);
                          });
  }

  const KeptStress& options_;
  const std::vector<HostClient>& clients_;
  const std::size_t number_;
  std::vector<std::size_t> words_;  // of each member
  KeptSet set_;
  KeptState state_;
  std::uint64_t last_epoch_ = 0;
};

// Kills the process after that time.
void kill_after(std::chrono::microseconds time) {
  std::thread([until = std::chrono::steady_clock::now() + time] {
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    std::raise(SIGKILL);
  }).detach();
}

// A quarter of the kills come soon after the start: while the sets are opened, or while a standby waits. The others
// come during the updates.
constexpr std::uint64_t kept_opening_us = 8'000;
constexpr std::uint64_t kept_updating_us = 30'000;

}  // namespace

int run_kept_round(const KeptStress& options, std::uint64_t round, KeptBook& book) try {
  Random random(Random::derived(options.seed, round + 1000));
  book.rounds.fetch_add(1);
  const bool is_last = round >= options.rounds;
  const bool dies = !is_last && random.unit() < options.kill;
  const bool dies_early = dies && random.below(4) == 0;
  const std::uint64_t updates = 1 + random.below(40);
  const std::uint64_t checksum_every = random.below(4);
  if (dies) book.kills.fetch_add(1);
  if (dies_early) kill_after(std::chrono::microseconds(random.below(kept_opening_us)));
  std::vector<HostClient> clients;
  for (const DeviceId device : options.devices) clients.push_back(HostClient::load(device));
  StressedSet in_place(options, clients, KeptMode::InPlace, checksum_every);
  StressedSet two_copies(options, clients, KeptMode::Double, checksum_every);
  in_place.check(book);
  two_copies.check(book);
  if (is_last || book.has_wrong.load()) return 0;
  if (dies && !dies_early) kill_after(std::chrono::microseconds(random.below(kept_updating_us)));
  const CommunicationId all(options.devices);
  std::vector<Handle> one;
  for (const HostClient& client : clients) one.push_back(client.create(Bytes::zeroed(sizeof(float))));
  for (std::uint64_t i = 0; dies || i < updates; ++i) {
    in_place.update();
    two_copies.update();
    for (std::size_t device = 0; device < clients.size(); ++device) {  // between two updates of all devices
      if (clients.size() > 1) clients[device].all_reduce(one[device], one[device], ElementType::F32, all);
      clients[device].sync_collective();
    }
    if (random.below(3) != 0) continue;
    for (const HostClient& client : clients) client.sync().get();
    in_place.note_synced(book);
    two_copies.note_synced(book);
  }
  for (const HostClient& client : clients) client.sync().get();
  return next_round_code;
} catch (const std::exception& error) {
  book.add_wrong(std::string("round ") + std::to_string(round) + ": " + error.what());
  return 0;
}

}  // namespace cox::stress
