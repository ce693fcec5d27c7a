#include <coxswain/tests/collectives/world/world_model.hpp>

#include <coxswain/tests/collectives/world/leader_state.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <unordered_set>

namespace cox::test {
namespace {

using std::uint8_t;

constexpr std::size_t max_processes_here = 4;
constexpr std::size_t max_groups_here = 3;
constexpr std::size_t max_sequences_here = 3;
constexpr std::size_t max_operations_here = 4;
constexpr std::size_t epochs_here = 4;  // 1 to 3
constexpr uint8_t endless = 255;

constexpr uint8_t narrow(std::integral auto value) { return static_cast<uint8_t>(value); }
constexpr std::uint64_t number_of(std::size_t sequence, std::size_t epoch) { return sequence * 16 + epoch; }

struct Violation {
  std::string text;
};
[[noreturn]] void fail(const std::string& text) { throw Violation{text}; }
void require(bool condition, const char* text) {
  if (!condition) fail(text);
}

// All members of what follows are bytes, so that a state can be compared as such.

struct Name {
  uint8_t sequence = 0;
  uint8_t epoch = 0;
  uint8_t operation = 0;  // 0: none
};
struct ToLeader {
  enum class Kind : uint8_t { Open, Ask, Refuse, Break, Progress, Answer };
  Kind kind{};
  Name name = {};
  uint8_t request = 0;
  uint8_t question = 0;
  std::array<Name, 2> awaited{};
};
struct FromLeader {
  enum class Kind : uint8_t { Release, Refused, Broken, Why, Gone, Joined };
  Kind kind{};
  Name name = {};
  uint8_t turn = 0;  // or the process, the question, the group
  std::array<uint8_t, max_sequences_here> ends{};
};

enum class Result : uint8_t { None, Asked, Refused, Launched, Broken };

/// What a process knows of a sequence of an instance.
struct View {
  uint8_t asked = 0;
  uint8_t end = endless;
  std::array<Result, max_operations_here + 1> results{};
};
struct Process {
  uint8_t is_present = 1;
  uint8_t restarts = 0;
  uint8_t steps = 0;   // of its program that it has made
  uint8_t absent = 0;  // processes that it knows to be gone, as bits
  uint8_t last_turn = 0;
  std::array<uint8_t, max_groups_here> broken{};  // by group: the last broken epoch
  std::array<uint8_t, max_groups_here> epoch{};   // by group: that it has opened last
  std::array<uint8_t, max_groups_here> again{};   // by group: it is to open the next epoch
  std::array<uint8_t, max_groups_here> left{};    // by group: it has done so, and leaves its program for the group
  std::array<std::array<View, epochs_here>, max_sequences_here> views{};
  std::array<Name, 16> launched{};  // and not completed
  uint8_t launches = 0;
};
/// What all processes together have done in a sequence of an instance.
struct Truth {
  std::array<uint8_t, max_processes_here> owner{};  // restarts of the process that has asked, plus 1
  std::array<std::array<uint8_t, max_operations_here + 1>, max_processes_here> request{};  // plus 1; 0: not asked
  std::array<std::array<std::array<Name, 2>, max_operations_here + 1>, max_processes_here> awaited{};
  std::array<uint8_t, max_operations_here + 1> turn{};
  std::array<uint8_t, max_processes_here> completed{};  // number of released operations
  uint8_t released = 0;
  uint8_t has_lost = 0;                              // a member has crashed since it was released
  std::array<uint8_t, max_processes_here> forged{};  // operations, as bits: see Flaw::ReleaseEarly
};
struct Bytes {
  std::array<Process, max_processes_here> processes{};
  std::array<std::array<Truth, epochs_here>, max_sequences_here> truth{};
  uint8_t crashes = 0;
  uint8_t timeouts = 0;
};
static_assert(std::has_unique_object_representations_v<Bytes> && std::has_unique_object_representations_v<ToLeader> &&
              std::has_unique_object_representations_v<FromLeader>);

struct State {
  Leader leader;
  Bytes bytes;
  std::array<std::vector<ToLeader>, max_processes_here> up;
  std::array<std::vector<FromLeader>, max_processes_here> down;
  Leader::Time now{};
};

struct Action {
  enum class Kind : uint8_t { Step, Again, ToLeader, FromLeader, Complete, Crash, Restart, Time };
  Kind kind;
  uint8_t process = 0;
};

std::string to_string(const Action& action) {
  constexpr std::array names{"step of",      "opens again", "leader receives from", "leader sends to",
                             "completes at", "crash of",    "restart of",           "time passes"};
  std::string text = names[static_cast<std::size_t>(action.kind)];
  if (action.kind != Action::Kind::Time) text += " " + std::to_string(action.process);
  return text;
}

class Exploration {
 public:
  Exploration(const ModelWorld& world, Flaw flaw, std::size_t most_transitions)
      : world_(world), flaw_(flaw), most_transitions_(most_transitions) {}

  Explored run() {
    State start{Leader(std::vector<ProcessFacts>(world_.processes, ProcessFacts{}),
                       {.max_ahead = flaw_ == Flaw::IgnoreAhead ? 1024 : world_.max_ahead}),
                {},
                {},
                {},
                {}};
    try {
      if (!world_.stepwise)
        for (uint8_t process = 0; process < world_.processes; ++process)
          while (start.bytes.processes[process].steps < world_.programs[process].size()) make_step(start, process);
      visit(start);
    } catch (const Violation& violation) {
      found_.violation = violation.text + "; steps:";
      for (const Action& action : path_) found_.violation += " " + to_string(action) + ",";
    }
    return found_;
  }

 private:
  void visit(const State& state) {
    if (!seen_.insert(fingerprint_of(state)).second) return;
    ++found_.states;
    std::vector<Action> actions;
    list(state, actions);
    const bool is_quiet = std::ranges::none_of(actions, [](const Action& action) {
      return action.kind != Action::Kind::Crash && action.kind != Action::Kind::Restart;
    });
    if (is_quiet) {
      ++found_.quiet;
      const bool all_resolved = check_quiet(state);
      if (!all_resolved) actions.push_back({Action::Kind::Time});
    }
    for (const Action& action : actions) {
      if (found_.transitions == most_transitions_) return;
      State next = state;
      path_.push_back(action);
      apply(next, action, !is_quiet);
      ++found_.transitions;
      visit(next);
      path_.pop_back();
    }
  }

  struct Fingerprint {
    std::uint64_t first;
    std::uint64_t second;
    friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
  };
  struct HashOfFingerprint {
    std::size_t operator()(const Fingerprint& fingerprint) const noexcept { return fingerprint.first; }
  };
  Fingerprint fingerprint_of(const State& state) {
    scratch_ = LeaderState::of(state.leader);
    append(scratch_, scratch_.size());
    const auto add = [&](const void* data, std::size_t size) { scratch_.append(static_cast<const char*>(data), size); };
    add(&state.bytes, sizeof(state.bytes));
    for (std::size_t process = 0; process < world_.processes; ++process) {
      scratch_.push_back(static_cast<char>(state.up[process].size()));
      add(state.up[process].data(), state.up[process].size() * sizeof(ToLeader));
      scratch_.push_back(static_cast<char>(state.down[process].size()));
      add(state.down[process].data(), state.down[process].size() * sizeof(FromLeader));
    }
    const auto now = state.now.time_since_epoch().count();
    add(&now, sizeof(now));
    // Two sums of 64 bits with different multipliers: that two of 10 million states have the same is less likely than
    // a fault of the processor.
    std::uint64_t first = 0x9e3779b97f4a7c15;
    std::uint64_t second = 0xc2b2ae3d27d4eb4f;
    scratch_.resize((scratch_.size() + 7) / 8 * 8);
    for (std::size_t i = 0; i < scratch_.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, scratch_.data() + i, sizeof(word));
      first = (std::rotl(first, 23) ^ word) * 0xff51afd7ed558ccd;
      second = (std::rotl(second, 29) + word) * 0xc4ceb9fe1a85ec53;
      first ^= first >> 32U;
      second ^= second >> 31U;
    }
    return {first, second};
  }

  // The actions from a state.
  void list(const State& state, std::vector<Action>& actions) const {
    for (uint8_t process = 0; process < world_.processes; ++process) {
      const Process& its = state.bytes.processes[process];
      if (!its.is_present) {
        if (world_.restarts) actions.push_back({Action::Kind::Restart, process});
        continue;
      }
      if (!state.up[process].empty()) actions.push_back({Action::Kind::ToLeader, process});
      if (!state.down[process].empty()) actions.push_back({Action::Kind::FromLeader, process});
      if (its.steps < world_.programs[process].size()) actions.push_back({Action::Kind::Step, process});
      for (uint8_t group = 0; group < world_.groups.size(); ++group) {
        if (!may_open_again(its, group)) continue;
        actions.push_back({Action::Kind::Again, process});
        break;
      }
      if (state.bytes.crashes < world_.crashes && (world_.may_crash >> process & 1U) != 0)
        actions.push_back({Action::Kind::Crash, process});
      if (world_.completes && its.launches != 0 && may_complete(state, its.launched[0]) &&
          members_of(its.launched[0].sequence).front() == process)
        actions.push_back({Action::Kind::Complete, process});
    }
    if (state.bytes.timeouts < world_.timeouts && state.leader.next_deadline()) actions.push_back({Action::Kind::Time});
  }

  // What a process receives without ever sending for it is received at once: the order of that and of all else makes no
  // difference, and the checks at a launch are strictest as early as possible. The same holds for what it opens again,
  // unless it does so step by step.
  void settle(State& state) {
    const auto is_silent = [&](const FromLeader& message) {
      return message.kind == FromLeader::Kind::Release || message.kind == FromLeader::Kind::Gone ||
             (message.kind == FromLeader::Kind::Refused && flaw_ != Flaw::SkipRefused);
    };
    for (uint8_t process = 0; process < world_.processes; ++process) {
      auto& down = state.down[process];
      while (!down.empty() && is_silent(down.front())) {
        const FromLeader message = down.front();
        down.erase(down.begin());
        receive(state, process, message);
      }
      const Process& its = state.bytes.processes[process];
      if (!world_.stepwise && its.is_present != 0 && its.restarts == 0) open_all_again(state, process);
    }
  }

  void apply(State& state, const Action& action, bool counts) {
    const uint8_t process = action.process;
    Process& its = state.bytes.processes[process];
    switch (action.kind) {
      case Action::Kind::Step: make_step(state, process); break;
      case Action::Kind::Again: open_all_again(state, process); break;
      case Action::Kind::ToLeader: {
        const ToLeader message = state.up[process].front();
        state.up[process].erase(state.up[process].begin());
        give_to_leader(state, process, message);
        break;
      }
      case Action::Kind::FromLeader: {
        const FromLeader message = state.down[process].front();
        state.down[process].erase(state.down[process].begin());
        receive(state, process, message);
        break;
      }
      case Action::Kind::Complete: complete(state, its.launched[0]); break;
      case Action::Kind::Crash: {
        // What it has sent last may be lost: the crash then comes before the leader receives it.
        ++state.bytes.crashes;
        for (std::size_t sequence = 0; sequence < world_.sequences.size(); ++sequence)
          if (is_member(sequence, process))
            for (Truth& truth : state.bytes.truth[sequence]) truth.has_lost |= narrow(truth.released != 0 ? 1 : 0);
        its = Process{.is_present = 0, .restarts = its.restarts};
        state.up[process].clear();
        state.down[process].clear();
        state.leader.gone(process, Kind::ProcessGone, "crashed");
        forget_lost(state, process);
        take(state, process, flaw_ == Flaw::CrashUntold);
        break;
      }
      case Action::Kind::Restart:
        its = Process{.restarts = narrow(its.restarts + 1), .steps = narrow(world_.programs[process].size())};
        for (uint8_t other = 0; other < world_.processes; ++other)
          if (!state.leader.is_present(other) && other != process) its.absent |= narrow(1U << other);
        for (uint8_t group = 0; group < world_.groups.size(); ++group) its.again[group] = is_in(group, process);
        state.leader.joined(process, {.restart = its.restarts});
        take(state, process);
        if (flaw_ == Flaw::SuccessorUntold) state.down[process].clear();
        break;
      case Action::Kind::Time:
        if (counts) ++state.bytes.timeouts;
        state.now += milliseconds(1000);
        if (flaw_ != Flaw::NoDeadline) state.leader.expire(state.now);
        take(state, process);
    }
    settle(state);
  }

  // Processes

  [[nodiscard]] std::vector<uint8_t> members_of(std::size_t sequence) const {
    const ModelSequence& its = world_.sequences[sequence];
    const auto& devices = world_.groups[its.group];
    std::vector<uint8_t> members;
    if (its.direction != Direction{}) {
      for (const std::uint16_t rank : {its.direction.from, its.direction.to})
        members.push_back(narrow(devices[rank].process - 1));
    } else {
      for (const DeviceId device : devices) members.push_back(narrow(device.process - 1));
    }
    std::ranges::sort(members);
    return members;
  }
  [[nodiscard]] bool is_member(std::size_t sequence, uint8_t process) const {
    return std::ranges::binary_search(members_of(sequence), process);
  }
  // A process has crashed before the leader knew that it took part in an instance: its successor may do so.
  void forget_lost(State& state, uint8_t process) {
    for (std::size_t sequence = 0; sequence < world_.sequences.size(); ++sequence) {
      const auto broken = LeaderState::broken(state.leader, world_.groups[world_.sequences[sequence].group]);
      for (std::size_t epoch = broken + 1; epoch < epochs_here; ++epoch) {
        Truth& truth = state.bytes.truth[sequence][epoch];
        truth.owner[process] = 0;
        truth.request[process] = {};
        truth.awaited[process] = {};
      }
    }
  }
  [[nodiscard]] bool is_in(std::size_t group, uint8_t process) const {
    return std::ranges::any_of(world_.groups[group], [&](DeviceId each) { return each.process == process + 1; });
  }

  void open(State& state, uint8_t process, uint8_t group, uint8_t epoch) {
    Process& its = state.bytes.processes[process];
    its.epoch[group] = epoch;
    for (uint8_t sequence = 0; sequence < world_.sequences.size(); ++sequence)
      if (world_.sequences[sequence].group == group && is_member(sequence, process))
        state.up[process].push_back({.kind = ToLeader::Kind::Open, .name = {sequence, epoch, 0}});
  }

  void make_step(State& state, uint8_t process) {
    Process& its = state.bytes.processes[process];
    const ModelStep& step = world_.programs[process][its.steps++];
    const uint8_t group = world_.sequences[step.sequence].group;
    if (its.left[group] != 0) return;
    if (its.epoch[group] == 0) {
      const uint8_t epoch = next_epoch(its, group);
      if (epoch > world_.max_epoch) return;
      open(state, process, group, epoch);
    }
    submit(state, process, step);
  }

  [[nodiscard]] uint8_t next_epoch(const Process& its, std::size_t group) const {
    return flaw_ == Flaw::EpochKept && its.restarts == 0 ? std::max<uint8_t>(its.broken[group], 1)
                                                         : narrow(its.broken[group] + 1);
  }

  void submit(State& state, uint8_t process, const ModelStep& step) {
    Process& its = state.bytes.processes[process];
    const uint8_t epoch = its.epoch[world_.sequences[step.sequence].group];
    View& view = its.views[step.sequence][epoch];
    const uint8_t operation = narrow(view.asked + 1);
    if (step.kind == ModelStep::Kind::Break) {
      state.up[process].push_back({.kind = ToLeader::Kind::Break, .name = {step.sequence, epoch, step.from}});
      // What has not been asked will not be, so that it cannot be released. The rest may be released already.
      for (uint8_t other = 0; other < world_.sequences.size(); ++other) {
        if (world_.sequences[other].group != world_.sequences[step.sequence].group) continue;
        View& ends = its.views[other][epoch];
        ends.end =
            std::min(ends.end, std::max(narrow(ends.asked + 1), other == step.sequence ? step.from : uint8_t{0}));
        if (flaw_ != Flaw::HastyBreak) continue;
        for (Result& result : ends.results)
          if (result == Result::Asked) result = Result::Broken;
      }
      return;
    }
    if (operation >= view.end) return;  // refused by the process itself
    ToLeader message{.kind = ToLeader::Kind::Ask, .name = {step.sequence, epoch, operation}, .request = step.request};
    view.asked = operation;
    if (flaw_ == Flaw::SkipRefused && view.results[operation] == Result::Refused) return;
    if (view.results[operation] == Result::None) view.results[operation] = Result::Asked;
    Truth& truth = state.bytes.truth[step.sequence][epoch];
    uint8_t& owner = truth.owner[process];
    if (owner == 0) owner = narrow(its.restarts + 1);
    const bool is_owner = owner == its.restarts + 1;
    if (step.kind == ModelStep::Kind::Refuse) {
      message.kind = ToLeader::Kind::Refuse;
      if (is_owner) truth.request[process][operation] = 255;
    } else {
      std::size_t count = 0;
      for (const auto& [sequence, awaited] : step.awaited) {
        const uint8_t its_epoch = its.epoch[world_.sequences[sequence].group];
        if (its_epoch != 0 && its.views[sequence][its_epoch].asked >= awaited)
          message.awaited[count++] = {sequence, its_epoch, awaited};
      }
      if (is_owner) truth.request[process][operation] = narrow(step.request + 1);
      if (is_owner) truth.awaited[process][operation] = message.awaited;
    }
    state.up[process].push_back(message);
  }

  [[nodiscard]] bool may_open_again(const Process& its, std::size_t group) const {
    if (its.again[group] == 0 || next_epoch(its, group) > world_.max_epoch) return false;
    return world_.hasty || std::ranges::none_of(world_.groups[group], [&](DeviceId device) {
             return (its.absent >> (device.process - 1) & 1U) != 0;
           });
  }

  void open_all_again(State& state, uint8_t process) {
    for (uint8_t group = 0; group < world_.groups.size(); ++group)
      if (may_open_again(state.bytes.processes[process], group)) open_again(state, process, group);
  }

  void open_again(State& state, uint8_t process, uint8_t group) {
    Process& its = state.bytes.processes[process];
    its.again[group] = 0;
    its.left[group] = 1;
    open(state, process, group, next_epoch(its, group));
    for (uint8_t sequence = 0; sequence < world_.sequences.size(); ++sequence)
      if (world_.sequences[sequence].group == group && is_member(sequence, process))
        for (uint8_t i = 0; i < world_.sequences[sequence].operations; ++i)
          submit(state, process, {.sequence = sequence});
  }

  void receive(State& state, uint8_t process, const FromLeader& message) {
    Process& its = state.bytes.processes[process];
    switch (message.kind) {
      case FromLeader::Kind::Release: launch(state, process, message); break;
      case FromLeader::Kind::Refused: {
        Result& result = its.views[message.name.sequence][message.name.epoch].results[message.name.operation];
        require(result != Result::Launched, "an operation is refused that was launched");
        if (result != Result::Broken) result = Result::Refused;
        break;
      }
      case FromLeader::Kind::Broken: {
        const uint8_t group = message.turn;
        const uint8_t epoch = message.name.epoch;
        its.broken[group] = std::max(its.broken[group], epoch);
        for (std::size_t sequence = 0; sequence < world_.sequences.size(); ++sequence) {
          if (world_.sequences[sequence].group != group) continue;
          for (uint8_t each = 1; each <= epoch; ++each) {
            View& view = its.views[sequence][each];
            view.end = std::min(view.end, each == epoch ? message.ends[sequence] : uint8_t{1});
            for (uint8_t operation = view.end; operation <= max_operations_here; ++operation) {
              Result& result = view.results[operation];
              if (each == epoch || its.restarts == 0)
                require(result != Result::Launched || each != epoch, "an operation is broken that was launched");
              if (result == Result::Asked || result == Result::None) result = Result::Broken;
            }
          }
        }
        if (its.epoch[group] != 0 && its.epoch[group] <= epoch) its.again[group] = 1;
        break;
      }
      case FromLeader::Kind::Why:
        if ((world_.answers >> process & 1U) != 0)
          state.up[process].push_back({.kind = ToLeader::Kind::Answer, .question = message.turn});
        break;
      case FromLeader::Kind::Gone: its.absent |= narrow(1U << message.turn); break;
      case FromLeader::Kind::Joined: its.absent &= narrow(~(1U << message.turn)); break;
    }
  }

  [[nodiscard]] bool is_resolved(const Process& its, const Name& name) const {
    const View& view = its.views[name.sequence][name.epoch];
    for (uint8_t operation = 1; operation <= name.operation; ++operation)
      if (view.results[operation] == Result::Asked || view.results[operation] == Result::None) return false;
    return true;
  }

  void launch(State& state, uint8_t process, const FromLeader& message) {
    Process& its = state.bytes.processes[process];
    const Name name = message.name;
    View& view = its.views[name.sequence][name.epoch];
    Truth& truth = state.bytes.truth[name.sequence][name.epoch];
    require(message.turn > its.last_turn, "turns are not in order");
    its.last_turn = message.turn;
    require(view.results[name.operation] != Result::Refused, "an operation is launched that was refused");
    require(view.results[name.operation] != Result::Broken, "an operation is launched that was broken");
    require(view.results[name.operation] == Result::Asked, "an operation is launched that was not asked");
    if (name.operation > 1)
      require(is_resolved(its, {name.sequence, name.epoch, narrow(name.operation - 1)}),
              "an operation is launched before an earlier one");
    const uint8_t request = truth.request[process][name.operation];
    for (const uint8_t member : members_of(name.sequence)) {
      require(truth.request[member][name.operation] != 0, "an operation is launched that not all processes have asked");
      require(truth.request[member][name.operation] != 255, "an operation is launched that a process has refused");
      require(truth.request[member][name.operation] == request, "an operation with different requests is launched");
    }
    for (const Name& awaited : truth.awaited[process][name.operation])
      if (awaited.operation != 0)
        require(is_resolved(its, awaited), "an operation is launched before one that it awaits");
    require(truth.turn[name.operation] == message.turn, "an operation has different turns");
    view.results[name.operation] = Result::Launched;
    its.launched[its.launches++] = name;
  }

  [[nodiscard]] bool may_complete(const State& state, const Name& name) const {
    return std::ranges::all_of(members_of(name.sequence), [&](uint8_t member) {
      const Process& its = state.bytes.processes[member];
      return its.launches != 0 && its.launched[0].sequence == name.sequence && its.launched[0].epoch == name.epoch &&
             its.launched[0].operation == name.operation;
    });
  }

  void complete(State& state, const Name name) const {
    for (const uint8_t member : members_of(name.sequence)) {
      Process& its = state.bytes.processes[member];
      std::ranges::rotate(its.launched, its.launched.begin() + 1);
      its.launched[--its.launches] = {};
      ++state.bytes.truth[name.sequence][name.epoch].completed[member];
      if (flaw_ != Flaw::NoProgress || member != 1)
        state.up[member].push_back({.kind = ToLeader::Kind::Progress, .name = name});
    }
  }

  // The leader

  void give_to_leader(State& state, uint8_t process, const ToLeader& its) {
    const std::uint64_t number = number_of(its.name.sequence, its.name.epoch);
    Message message;
    switch (its.kind) {
      case ToLeader::Kind::Open: {
        const ModelSequence& sequence = world_.sequences[its.name.sequence];
        message = Open{.number = number,
                       .devices = world_.groups[sequence.group],
                       .epoch = its.name.epoch,
                       .direction = sequence.direction,
                       .timeout = milliseconds(1000)};
        break;
      }
      case ToLeader::Kind::Ask: {
        if (flaw_ == Flaw::ReleaseEarly && forge(state, process, its)) return;
        Ask ask{.number = number,
                .operation = its.name.operation,
                .fingerprint = fingerprint(flaw_ == Flaw::MissMismatch ? uint8_t{0} : its.request)};
        for (const Name& awaited : its.awaited)
          if (awaited.operation != 0 && flaw_ != Flaw::IgnoreAwaited)
            ask.awaited.push_back({number_of(awaited.sequence, awaited.epoch), awaited.operation});
        message = std::move(ask);
        break;
      }
      case ToLeader::Kind::Refuse: message = Refuse{.number = number, .operation = its.name.operation}; break;
      case ToLeader::Kind::Break: message = Break{.number = number, .from = its.name.operation}; break;
      case ToLeader::Kind::Progress: message = Progress{.number = number, .completed = its.name.operation}; break;
      case ToLeader::Kind::Answer: message = Answer{.question = its.question}; break;
    }
    give_to_leader(state, process, std::move(message));
    if (const auto due = state.leader.next_deadline(); due && *due <= state.now && flaw_ != Flaw::NoDeadline)
      state.leader.expire(state.now);
    take(state, process, false, its.kind == ToLeader::Kind::Open, its.kind == ToLeader::Kind::Break);
  }

  void give_to_leader(State& state, uint8_t process, Message message) {
    if (const auto fault = state.leader.receive(process, std::move(message), state.now)) fail("a fault: " + *fault);
  }

  // Flaw::ReleaseEarly: the ask counts also for a process that has not asked. Returns whether that was done for this
  // one.
  bool forge(State& state, uint8_t process, const ToLeader& its) {
    Truth& truth = state.bytes.truth[its.name.sequence][its.name.epoch];
    const uint8_t bit = narrow(1U << its.name.operation);
    if ((truth.forged[process] & bit) != 0) return true;
    const uint8_t other = members_of(its.name.sequence).back();
    if (other == process || its.name.operation != 2 || !state.up[other].empty() || truth.request[other][1] == 0 ||
        truth.request[other][2] != 0)
      return false;
    truth.forged[other] |= bit;
    give_to_leader(state, other,
                   Ask{.number = number_of(its.name.sequence, its.name.epoch),
                       .operation = 2,
                       .fingerprint = fingerprint(its.request)});
    return false;
  }

  // Puts what the leader sends on its way.
  void take(State& state, uint8_t sender, bool is_crash_untold = false, bool is_open = false, bool is_break = false) {
    state.leader.take_outgoing(outgoing_);
    for (const Outgoing& each : outgoing_) {
      const uint8_t process = narrow(each.process);
      FromLeader message = from_leader(each.message);
      const Process& its = state.bytes.processes[process];
      if (const auto* const release = std::get_if<Release>(&each.message)) note_release(state, process, *release);
      const bool is_broken = message.kind == FromLeader::Kind::Broken;
      const bool is_last = process == world_.processes - 1;
      if (is_crash_untold && process == 0 && is_broken) continue;
      if (flaw_ == Flaw::BreakUntold && is_broken && its.epoch[message.turn] < message.name.epoch) continue;
      if (flaw_ == Flaw::BreakOnlyOnCrash && is_broken && is_break && process != sender) continue;
      if (flaw_ == Flaw::LoseRelease && message.kind == FromLeader::Kind::Release && is_last) continue;
      if (message.kind == FromLeader::Kind::Refused) {
        if (flaw_ == Flaw::ForgetRefusals && is_open) continue;
        if (flaw_ == Flaw::LoseRefusal && process != sender &&
            its.views[message.name.sequence][message.name.epoch].results[message.name.operation] == Result::None)
          continue;
      }
      if (flaw_ == Flaw::BreakReleased && is_broken)
        for (uint8_t& end : message.ends) end = std::max<uint8_t>(1, narrow(end - 1));
      auto& down = state.down[process];
      down.push_back(message);
      if (flaw_ == Flaw::SwapTurns && process == 1 && down.size() > 1 && is_release(down.back()) &&
          is_release(down[down.size() - 2]))
        std::swap(down.back(), down[down.size() - 2]);
    }
  }
  static bool is_release(const FromLeader& message) { return message.kind == FromLeader::Kind::Release; }

  void note_release(State& state, uint8_t process, const Release& release) {
    const std::size_t sequence = release.number / 16;
    Truth& truth = state.bytes.truth[sequence][release.number % 16];
    uint8_t& turn = truth.turn[release.operation];
    if (turn == 0) ++truth.released;
    require(turn == 0 || turn == release.turn, "an operation is released twice");
    turn = narrow(release.turn);
    require(!world_.completes || truth.released - truth.completed[process] <= static_cast<int>(world_.max_ahead),
            "a process is too far behind");
  }

  [[nodiscard]] FromLeader from_leader(const Message& message) const {
    using Kind = FromLeader::Kind;
    const auto name = [](std::uint64_t number, std::uint64_t operation) {
      return Name{narrow(number / 16), narrow(number % 16), narrow(operation)};
    };
    if (const auto* const release = std::get_if<Release>(&message))
      return {.kind = Kind::Release, .name = name(release->number, release->operation), .turn = narrow(release->turn)};
    if (const auto* const refused = std::get_if<Refused>(&message))
      return {.kind = Kind::Refused, .name = name(refused->number, refused->operation)};
    if (const auto* const why = std::get_if<Why>(&message))
      return {.kind = Kind::Why, .name = {}, .turn = narrow(why->question)};
    if (const auto* const gone = std::get_if<Gone>(&message))
      return {.kind = Kind::Gone, .name = {}, .turn = narrow(gone->process)};
    if (const auto* const joined = std::get_if<Joined>(&message))
      return {.kind = Kind::Joined, .name = {}, .turn = narrow(joined->process)};
    const auto& broken = std::get<Broken>(message);
    const auto group = std::ranges::find(world_.groups, broken.devices) - world_.groups.begin();
    FromLeader its{.kind = Kind::Broken, .name = name(broken.epoch, 0), .turn = narrow(group)};
    for (std::size_t sequence = 0; sequence < world_.sequences.size(); ++sequence) {
      its.ends[sequence] = 1;
      for (const SequenceEnd& end : broken.ends)
        if (end.direction == world_.sequences[sequence].direction)
          its.ends[sequence] = narrow(std::min<std::uint64_t>(end.from, endless));
    }
    return its;
  }

  // Nothing is on its way. Returns whether no process waits for an operation.
  bool check_quiet(const State& state) const {
    bool all_resolved = true;
    const auto& processes = state.bytes.processes;
    for (uint8_t process = 0; process < world_.processes; ++process) {
      const Process& its = processes[process];
      if (its.is_present == 0) continue;
      for (uint8_t sequence = 0; sequence < world_.sequences.size(); ++sequence)
        for (uint8_t epoch = 1; epoch < epochs_here; ++epoch)
          for (uint8_t operation = 1; operation <= its.views[sequence][epoch].asked; ++operation) {
            if (its.views[sequence][epoch].results[operation] != Result::Asked) continue;
            all_resolved = false;
            require(is_one_missing(state, process, {sequence, epoch, operation}, 0),
                    "an operation waits, and no process is missing");
            require(state.leader.next_deadline().has_value(), "an operation waits without a deadline");
            require(*state.leader.next_deadline() > state.now, "an operation waits after its deadline");
          }
      for (std::size_t group = 0; group < world_.groups.size(); ++group) {
        if (!is_in(group, process)) continue;
        require(its.broken[group] == LeaderState::broken(state.leader, world_.groups[group]),
                "a process does not know that an instance is broken");
        if (all_present(state, group) && its.epoch[group] != 0 && its.broken[group] < world_.max_epoch)
          require(its.epoch[group] == its.broken[group] + 1, "a process has not opened the next instance");
      }
    }
    for (std::size_t group = 0; group < world_.groups.size(); ++group)
      require(all_present(state, group) || !LeaderState::has_instance(state.leader, world_.groups[group]),
              "an instance with a process that is gone is not broken");
    check_launches(state);
    return all_resolved;
  }

  [[nodiscard]] bool all_present(const State& state, std::size_t group) const {
    return std::ranges::all_of(world_.groups[group], [&](DeviceId device) {
      return state.bytes.processes[device.process - 1U].is_present != 0;
    });
  }

  // Whether the operation waits for a process, at last.
  [[nodiscard]] bool is_one_missing(const State& state, uint8_t process, Name name, int depth) const {
    if (depth > 20) return false;  // a ring
    const View& view = state.bytes.processes[process].views[name.sequence][name.epoch];
    while (name.operation > 1 && view.results[name.operation - 1U] == Result::Asked) --name.operation;
    const Truth& truth = state.bytes.truth[name.sequence][name.epoch];
    for (const uint8_t member : members_of(name.sequence))
      if (truth.request[member][name.operation] == 0) return state.bytes.processes[member].is_present != 0;
    for (const uint8_t member : members_of(name.sequence))
      for (const Name& awaited : truth.awaited[member][name.operation])
        if (awaited.operation != 0 && !is_resolved(state.bytes.processes[member], awaited) &&
            is_one_missing(state, member, awaited, depth + 1))
          return true;
    return false;
  }

  // All members have launched the same, and devices that run the launched operations one after the other end.
  void check_launches(const State& state) const {
    State rest = state;
    for (std::size_t sequence = 0; sequence < world_.sequences.size(); ++sequence)
      for (uint8_t epoch = 1; epoch < epochs_here; ++epoch)
        for (uint8_t operation = 1; operation <= max_operations_here; ++operation) {
          const Truth& truth = state.bytes.truth[sequence][epoch];
          if (truth.turn[operation] == 0) continue;
          for (const uint8_t member : members_of(sequence)) {
            const Process& its = state.bytes.processes[member];
            if (its.is_present != 0 && truth.owner[member] == its.restarts + 1)
              require(its.views[sequence][epoch].results[operation] == Result::Launched,
                      "a process has not launched what others have");
          }
        }
    for (bool has_completed = true; has_completed;) {
      has_completed = false;
      for (uint8_t process = 0; process < world_.processes; ++process) {
        Process& its = rest.bytes.processes[process];
        while (its.launches != 0) {
          const Name name = its.launched[0];
          if (rest.bytes.truth[name.sequence][name.epoch].has_lost != 0) {  // it fails, for its peer is gone
            std::ranges::rotate(its.launched, its.launched.begin() + 1);
            --its.launches;
          } else if (may_complete(rest, name)) {
            complete(rest, name);
          } else {
            break;
          }
          has_completed = true;
        }
      }
    }
    for (const Process& its : rest.bytes.processes) require(its.launches == 0, "launched operations do not complete");
  }

  const ModelWorld& world_;
  const Flaw flaw_;
  const std::size_t most_transitions_;
  Explored found_;
  std::unordered_set<Fingerprint, HashOfFingerprint> seen_;
  std::vector<Action> path_;
  std::vector<Outgoing> outgoing_;
  std::string scratch_;
};

}  // namespace

Explored explore(const ModelWorld& world, Flaw flaw, std::size_t most_transitions) {
  return Exploration(world, flaw, most_transitions).run();
}

}  // namespace cox::test
