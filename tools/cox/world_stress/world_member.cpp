#include <coxswain/tools/cox/world_stress/world_member.hpp>

#include <coxswain/collectives/world/world.hpp>
#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/communication/collective_error.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

namespace cox::stress {
namespace {

using Kind = CollectiveError::Kind;
using Clock = std::chrono::steady_clock;

constexpr std::size_t most_elements = 60'000;

constexpr std::array<std::string_view, 11> kind_names{"Validation",    "Mismatch",      "RankFailed",  "Timeout",
                                                      "WouldDeadlock", "Aborted",       "Unsupported", "Backend",
                                                      "ProcessGone",   "ProcessSilent", "WorldGone"};
static_assert(kind_names.size() == static_cast<std::size_t>(Kind::WorldGone) + 1);

/// Appends lines to the report.
class Report {
 public:
  explicit Report(const std::string& file)
      : descriptor_(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;
  ~Report() { ::close(descriptor_); }

  void add(const std::string& what, const std::exception_ptr& error) const {
    std::string kind = "none";
    std::string text;
    if (error != nullptr) {
      const auto* const found = find_cause<CollectiveError>(error);
      kind = found == nullptr ? "other" : kind_names[static_cast<std::size_t>(found->kind())];
      text = describe(error);
      std::ranges::replace(text, '\n', ' ');
    }
    const std::string line =
        what + "|" + kind + "|" + std::to_string(Clock::now().time_since_epoch().count()) + "|" + text + "\n";
    if (::write(descriptor_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(3);
  }

 private:
  int descriptor_;
};

/// The devices of this process in its world, and what it does with them.
class Member {
 public:
  Member(const WorldMember& member, const World& world, std::vector<DeviceId> own)
      : member_(member), world_(world), devices_(world.devices(host_device_type)), own_(std::move(own)) {
    for (const DeviceId device : own_) {
      Rank rank{.device = device, .client = HostClient::load(device)};
      rank.device.process = static_cast<std::uint16_t>(world.process() + 1);
      rank.values = rank.client.create(Bytes::from_vector(std::vector<float>(most_elements, 1.0F)));
      rank.sums = rank.client.empty(most_elements * sizeof(float));
      rank.sums_of_pairs = rank.client.empty(most_elements * sizeof(float));
      ranks_.push_back(std::move(rank));
    }
  }

  // A process waits only for operations of all processes, which every fault ends. Once they have completed, those of
  // pairs complete, too: all processes have submitted them before.
  void loop(std::uint64_t number) {
    const CommunicationId all(devices_);
    std::vector<CommunicationId> pairs;
    for (std::uint16_t first = 0; first + 1 < world_.size(); ++first)
      pairs.push_back(devices_of({first, static_cast<std::uint16_t>(first + 1)}));
    for (std::size_t i = 0; i < pairs.size(); ++i)
      if (has(pairs[i])) submit(pairs[i], elements(number + i), &Rank::sums_of_pairs);
    for (std::uint64_t i = 0; i < 3; ++i) submit(all, elements(number * 3 + i));
    check(all);
    for (std::size_t i = pairs.size(); i-- > 0;)
      if (has(pairs[i])) {
        check(pairs[i], &Rank::sums_of_pairs);  // the last one that this process has submitted
        break;
      }
    const auto faulty = static_cast<std::uint16_t>(number % world_.size());
    if (member_.scenario == Scenario::Refusals) refuse(all, faulty, number % 2 == 0);
    if (member_.scenario == Scenario::Aborts) abort(all, faulty);
    if (member_.scenario == Scenario::Overdue) leave_out(all, faulty, number);
  }
  /// Sums of the processes that are left.
  void sum_without(const std::vector<std::uint16_t>& lost) {
    std::vector<std::uint16_t> left;
    for (std::uint16_t process = 0; process < world_.size(); ++process)
      if (std::ranges::find(lost, process) == lost.end()) left.push_back(process);
    const CommunicationId rest = devices_of(left);
    // Operations of the streams so far may still fail, and report it there.
    for (Rank& rank : ranks_) {
      rank.client.set_stream(StreamId::allocate());
      rank.values = rank.client.create(Bytes::from_vector(std::vector<float>(most_elements, 1.0F)));
      rank.sums = rank.client.empty(most_elements * sizeof(float));
      rank.client.ensure_init_collective(rest);
    }
    for (std::uint64_t i = 0; i < 5; ++i) sum(rest, elements(i));
  }
  void sum_of_all() {
    const CommunicationId all(devices_);
    ranks_.front().client.ensure_init_collective(all);
    sum(all, 8);
  }

 private:
  struct Rank {
    DeviceId device;
    HostClient client;
    Handle values{};
    Handle sums{};
    Handle sums_of_pairs{};
  };

  static std::size_t elements(std::uint64_t number) { return number % 4 == 0 ? most_elements : 1 + number % 1000; }
  [[nodiscard]] CommunicationId devices_of(const std::vector<std::uint16_t>& processes) const {
    std::vector<DeviceId> chosen;
    for (const DeviceId device : devices_)
      if (std::ranges::find(processes, device.process - 1) != processes.end()) chosen.push_back(device);
    return CommunicationId(chosen);
  }
  [[nodiscard]] bool has(const CommunicationId& group) const {
    return std::ranges::find(group.devices(), ranks_.front().device) != group.devices().end();
  }

  static void submit(const Rank& rank, const CommunicationId& group, std::size_t count,
                     Handle Rank::* sums = &Rank::sums) {
    const std::size_t rest = (most_elements - count) * sizeof(float);
    rank.client.all_reduce(rank.values.offset_end(rest), (rank.*sums).offset_end(rest), ElementType::F32, group);
  }
  void submit(const CommunicationId& group, std::size_t count, Handle Rank::* sums = &Rank::sums) const {
    for (const Rank& rank : ranks_) submit(rank, group, count, sums);
  }
  void check(const CommunicationId& group, Handle Rank::* sums = &Rank::sums) const {
    std::vector<Future<std::vector<Bytes>>> reads;
    for (const Rank& rank : ranks_)
      reads.push_back(rank.client.read_async(std::array{(rank.*sums).offset_end((most_elements - 1) * sizeof(float))}));
    std::exception_ptr failed;
    for (auto& read : reads) {
      try {
        if (read.get().front().to_vector<float>().front() != static_cast<float>(group.world_size()))
          throw std::runtime_error("a sum is wrong");
      } catch (...) {
        if (failed == nullptr) failed = std::current_exception();
      }
    }
    if (failed != nullptr) std::rethrow_exception(failed);
  }
  void sum(const CommunicationId& group, std::size_t count) const {
    if (!has(group)) return;
    submit(group, count);
    check(group);
  }
  // Calls f, which must fail with that kind.
  static void expect(Kind kind, const std::function<void()>& f) {
    try {
      f();
    } catch (...) {
      const auto* const error = find_cause<CollectiveError>(std::current_exception());
      if (error != nullptr && error->kind() == kind) return;
      throw;
    }
    throw std::runtime_error("an operation has succeeded that should have failed");
  }

  // The requests of the faulty process differ from those of the others, or among each other.
  void refuse(const CommunicationId& all, std::uint16_t faulty, bool among_each_other) const {
    expect(Kind::Mismatch, [&] {
      for (std::size_t i = 0; i < ranks_.size(); ++i)
        submit(ranks_[i], all, world_.process() == faulty && (i == 0 || !among_each_other) ? 7 : 8);
      for (const Rank& rank : ranks_) rank.client.sync().wait();
      check(all);
    });
    for (const Rank& rank : ranks_) discard_error(rank);
  }
  // A failed collective has poisoned its output, and is reported by each stream once.
  static void discard_error(const Rank& rank) {
    try {
      rank.client.sync().get();
    } catch (...) {
    }
    rank.client.accept(rank.sums);
  }
  void abort(const CommunicationId& all, std::uint16_t faulty) const {
    const HostClient& client = ranks_.front().client;
    if (world_.process() == faulty)
      client.abort_collective(all, std::make_exception_ptr(std::runtime_error("this process gives up")));
    else
      expect(Kind::Aborted, [&] { sum(all, 16); });
    renew(all);
  }
  // The faulty process takes part only when another one has been notified, and has made a file.
  void leave_out(const CommunicationId& all, std::uint16_t faulty, std::uint64_t number) const {
    const std::filesystem::path file =
        std::filesystem::path(member_.report).parent_path() / ("notified" + std::to_string(number));
    if (world_.process() == faulty) {
      while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      expect(Kind::Timeout, [&] { sum(all, 16); });  // the file can be there before the message of the leader
    } else {
      try {
        expect(Kind::Timeout, [&] { sum(all, 16); });
      } catch (...) {
        std::ofstream(file).put('1');
        throw;
      }
      std::ofstream(file).put('1');
    }
    renew(all);
  }
  void renew(const CommunicationId& all) const {
    discard_error(ranks_.front());
    ranks_.front().client.ensure_init_collective(all);
    sum(all, 4);
  }

  const WorldMember& member_;
  const World& world_;
  const std::vector<DeviceId> devices_;  // of all processes, by the names of the world
  const std::vector<DeviceId> own_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::string WorldMember::to_string() const {
  std::string text =
      std::to_string(static_cast<int>(scenario)) + " " + std::to_string(loops) + " " + std::to_string(lost.size());
  for (const std::uint16_t process : lost) text += " " + std::to_string(process);
  return text + " " + flaw + " " + report;
}

WorldMember WorldMember::parse(const std::string& text) {
  std::istringstream words(text);
  WorldMember member;
  int scenario = 0;
  std::size_t count = 0;
  words >> scenario >> member.loops >> count;
  member.scenario = static_cast<Scenario>(scenario);
  member.lost.resize(count);
  for (std::uint16_t& process : member.lost) words >> process;
  words >> member.flaw >> member.report;
  return member;
}

std::vector<MemberLine> read_report(const std::string& file) {
  std::vector<MemberLine> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line) && !in.eof();) {
    std::istringstream words(line);
    MemberLine each;
    std::string when;
    std::getline(words, each.what, '|');
    std::getline(words, each.error, '|');
    std::getline(words, when, '|');
    std::getline(words, each.text);
    each.when = Clock::time_point(Clock::duration(std::stoll(when)));
    lines.push_back(std::move(each));
  }
  return lines;
}

int run_world_member(const WorldMember& member) {
  const Report report(member.report);
  if (std::freopen((member.report + ".errors").c_str(), "w", stderr) == nullptr) return 3;
  std::vector<DeviceId> own{{host_device_type, 0}};
  if (member.scenario == Scenario::Refusals) own.push_back({host_device_type, 1});
  set_host_device_count(static_cast<std::uint16_t>(own.size()));
  std::optional<World> world;
  try {
    world.emplace(World::join(own));
  } catch (...) {
    report.add("not joined", std::current_exception());
    return 0;
  }
  report.add("joined", nullptr);
  Member all(member, *world, own);
  try {
    for (std::uint64_t i = 0; i < member.loops; ++i) all.loop(i);
    all.sum_of_all();  // no process leaves while another one has operations that this one has ended already
    report.add("done", nullptr);
    world->leave();
    return 0;
  } catch (...) {
    const std::exception_ptr other = std::make_exception_ptr(CollectiveError(Kind::Backend, "planted"));
    report.add("notified", member.flaw == "error" ? other : std::current_exception());
  }
  if (member.flaw == "rest") return 0;
  const auto attempt = [&](const char* what, const std::function<void()>& f) {
    try {
      f();
      report.add(what, nullptr);
    } catch (...) {
      report.add(what, std::current_exception());
    }
  };
  if (std::ranges::find(member.lost, world->process()) == member.lost.end() &&
      std::ranges::find(member.lost, std::uint16_t{0}) == member.lost.end())
    attempt("rest", [&] { all.sum_without(member.lost); });
  else
    attempt("again", [&] { all.sum_of_all(); });
  world->leave();
  return 0;
}

}  // namespace cox::stress
