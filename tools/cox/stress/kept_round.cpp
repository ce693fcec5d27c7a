#include <coxswain/tools/cox/stress/kept_round.hpp>

#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tools/cox/device_list.hpp>
#include <coxswain/tools/cox/exit_code.hpp>
#include <coxswain/tools/cox/stress/kept_kernels.hpp>

#if COX_HAS_CUDA
#include <coxswain/tools/cox/stress/cuda_kept_kernels.hpp>
#endif

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

namespace cox::stress {
namespace {

constexpr std::size_t kept_members = 3;

// One of the two sets, on all devices.
template <class Client>
class StressedSet {
 public:
  StressedSet(const KeptStress& options, const std::vector<Client>& clients, KeptMode mode,
              std::uint64_t checksum_every, bool collective_between)
      : options_(options),
        clients_(clients),
        number_(mode == KeptMode::Double ? 1 : 0),
        set_(mode == KeptMode::Double ? "two copies" : "in place", options.devices,
             {.schema = "cox stress, seed " + std::to_string(options.seed),
              .mode = mode,
              .collective_between = collective_between,
              .checksum_every = checksum_every}) {
    Random sizes(Random::derived(options.seed, number_));
    for (std::size_t i = 0; i < kept_members; ++i)
      words_.push_back(options.payload.pick(sizes) / sizeof(std::uint64_t) + 1);
    for (const Client& client : clients_)
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
      const Client& client = clients_[device];
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
    const Client& client = clients_[device];
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

  static bool can_be_read(const Client& client, const Handle& memory) {
    try {
      static_cast<void>(client.read_one(memory));
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  void write(std::size_t device, std::size_t member, std::uint64_t epoch, Access access) {
    KeptKernels<Client>::write(clients_[device], clients_[device].kept_next(set_, name_of(member)), access,
                               words_[member], epoch, device * kept_members + member);
  }

  const KeptStress& options_;
  const std::vector<Client>& clients_;
  const std::size_t number_;
  std::vector<std::size_t> words_;  // of each member
  KeptSet set_;
  KeptState state_;
  std::uint64_t last_epoch_ = 0;
};

// Calls a function that ends the process after a random time, on a thread of its own.
class EndSoon {
 public:
  EndSoon(std::function<void()> end, Random& random, std::chrono::microseconds longest)
      : thread_([end = std::move(end),
                 until = std::chrono::steady_clock::now() +
                         std::chrono::microseconds(random.below(static_cast<std::uint64_t>(longest.count())))] {
          while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
          end();
        }) {}

 private:
  std::jthread thread_;
};

KeptEnd pick_end(const KeptStress& options, Random& random) {
  double drawn = random.unit();
  if (drawn < options.kill) return KeptEnd::Kill;
  drawn -= options.kill;
  if (drawn < options.crash) return random.below(2) == 0 ? KeptEnd::Crash : KeptEnd::Exit;
  drawn -= options.crash;
  if (drawn >= options.fault) return KeptEnd::Itself;
  static constexpr std::array faults{KeptEnd::Trap, KeptEnd::Address, KeptEnd::Assertion};
  return faults[random.below(faults.size())];
}

// Updates both sets on all devices: for ever, or so many times.
template <class Client>
void update_sets(StressedSet<Client>& in_place, StressedSet<Client>& two_copies, const std::vector<Client>& clients,
                 bool collective_between, std::optional<std::uint64_t> updates, Random& random, KeptBook& book) {
  std::vector<DeviceId> devices;
  std::vector<Handle> one;
  for (const Client& client : clients) {
    devices.push_back(client.device_id());
    one.push_back(client.create(Bytes::zeroed(sizeof(float))));
  }
  const CommunicationId all(devices);
  const auto wait = [&] {
    for (const Client& client : clients) client.sync().get();
  };
  for (std::uint64_t i = 0; !updates || i < *updates; ++i) {
    in_place.update();
    two_copies.update();
    for (std::size_t device = 0; collective_between && device < clients.size(); ++device) {
      clients[device].all_reduce(one[device], one[device], ElementType::F32, all);
      clients[device].sync_collective();
    }
    if (random.below(3) != 0) continue;
    wait();
    in_place.note_synced(book);
    two_copies.note_synced(book);
  }
  wait();
}

template <class Client>
int run_round(const KeptStress& options, std::uint64_t round, KeptBook& book) {
  using Kernels = KeptKernels<Client>;
  Random random(Random::derived(options.seed, round + 1000));
  book.rounds.fetch_add(1);
  const bool is_last = round >= options.rounds;
  const KeptEnd end = is_last ? KeptEnd::Itself : pick_end(options, random);
  const bool is_cut = end != KeptEnd::Itself;
  const bool is_fault = end == KeptEnd::Trap || end == KeptEnd::Address || end == KeptEnd::Assertion;
  // A quarter of the ends come soon after the start: while the sets are opened, or while a standby waits. The others
  // come during the updates.
  const bool is_early = is_cut && random.below(4) == 0;
  const std::uint64_t updates = 1 + random.below(40);
  const std::uint64_t checksum_every = random.below(4);
  // Two updates are held apart by a collective of all devices, or, of two copies, by begin_update.
  const bool collective_between = random.below(2) == 0;
  if (is_cut) (end == KeptEnd::Kill ? book.kills : is_fault ? book.faults : book.crashes).fetch_add(1);
  std::vector<Client> clients;
  std::optional<EndSoon> ending;  // its thread uses the clients
  try {
    // A process can be killed while it opens its devices; a kernel can fail only afterwards.
    const auto cut = [&clients, end] {
      if (end == KeptEnd::Kill) std::raise(SIGKILL);
      if (end == KeptEnd::Crash) {
        std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would end the process by an exit code
        std::raise(SIGSEGV);
      }
      if (end == KeptEnd::Exit) std::_Exit(next_round_code);
      Kernels::fail(clients.back(), end);
    };
    if (is_early && !is_fault) ending.emplace(cut, random, Kernels::opening);
    for (const DeviceId device : options.devices) {
      clients.push_back(Client::load(device));
      Kernels::prepare(clients.back());
    }
    if (is_early && is_fault) ending.emplace(cut, random, Kernels::updating);
    StressedSet<Client> in_place(options, clients, KeptMode::InPlace, checksum_every, collective_between);
    StressedSet<Client> two_copies(options, clients, KeptMode::Double, checksum_every, collective_between);
    in_place.check(book);
    two_copies.check(book);
    if (is_last || book.has_wrong.load()) return 0;
    if (is_cut && !is_early) ending.emplace(cut, random, Kernels::updating);
    update_sets(in_place, two_copies, clients, collective_between, is_cut ? std::nullopt : std::optional(updates),
                random, book);
    return next_round_code;
  } catch (const Error&) {
    if (!is_fault || tools::exit_code_of_process(0) != gpu_fault_exit_code) throw;
    return gpu_fault_exit_code;
  }
}

}  // namespace

int run_kept_round(const KeptStress& options, std::uint64_t round, KeptBook& book) try {
#if COX_HAS_CUDA
  if (options.devices.front().type != host_device_type) return run_round<CudaClient>(options, round, book);
#endif
  return run_round<HostClient>(options, round, book);
} catch (const std::exception& error) {
  book.add_wrong(std::string("round ") + std::to_string(round) + ": " + error.what());
  return 0;
}

}  // namespace cox::stress
