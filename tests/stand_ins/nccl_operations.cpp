#include <coxswain/tests/stand_ins/nccl_operations.hpp>

#include <coxswain/collectives/nccl/nccl.hpp>
#include <coxswain/collectives/nccl/nccl_types.hpp>
#include <coxswain/collectives/reduction/reduce.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/servers/cuda/driver/driver.hpp>
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

namespace cox::test {
namespace {

// Unlike memmove(), with null pointers if there is nothing to copy.
void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memmove(to, from, bytes);
}

using Operation = FakeNccl::Operation;
using Kind = Operation::Kind;

/// Where the ranks of one operation find each other: all of the communicator, or the two of a transfer.
struct Meeting {
  std::vector<const Operation*> arrived;
  bool over = false;
};

// A rank that only gives to a reduction does not wait for the others: as NCCL's, while its buffers have room.
bool only_gives(const Operation& operation) {
  return operation.kind == Kind::Reduce && operation.rank != operation.peer;
}

/// A meeting: of which communicator, between whom (-1: all), and the how manieth of those.
using MeetingKey = std::tuple<std::uint64_t, int, int, std::uint64_t>;

/// What a rank was asked for in one launch, and where it meets the others.
struct Launch {
  enum class Step : std::uint8_t { Begun, Written, Done };
  std::vector<Operation> operations;
  std::vector<std::vector<std::byte>> given;       // of each operation of which the rank only gives
  std::vector<std::shared_ptr<Meeting>> meetings;  // empty if other processes take part
  std::vector<Step> steps;                         // of each operation, if other processes take part
};

struct Meetings {
  std::mutex mutex;
  std::map<MeetingKey, std::shared_ptr<Meeting>> open;  // guarded by mutex
  std::map<std::tuple<std::uint64_t, int, int, int>, std::uint64_t>
      counts;  // guarded by mutex; the last: of which rank
};
Meetings& meetings() {
  static auto& meetings = *new Meetings;
  return meetings;
}

std::shared_ptr<Meeting> meeting_of(const Operation& operation) {
  const bool sends = operation.kind == Kind::Send;
  const bool all = !sends && operation.kind != Kind::Receive;
  const int from = all ? -1 : sends ? operation.rank : operation.peer;
  const int to = all ? -1 : sends ? operation.peer : operation.rank;
  const int side = all ? operation.rank : sends ? 0 : 1;
  Meetings& all_meetings = meetings();
  const std::lock_guard lock(all_meetings.mutex);
  const std::uint64_t count = all_meetings.counts[{operation.communicator, from, to, side}]++;
  auto& found = all_meetings.open[{operation.communicator, from, to, count}];
  if (found == nullptr) return found = std::make_shared<Meeting>();
  const auto met = found;
  if (!all) all_meetings.open.erase({operation.communicator, from, to, count});
  return met;
}

ElementType element_type(int nccl) {
  return std::ranges::find(detail::nccl_types, static_cast<detail::NcclType>(nccl), &detail::NcclTypeOf::nccl)->type;
}

// All ranks' elements reduced, `count` of each, in the order of ranks. Where that order is asked for, NCCL is not to be
// used: then each part of the data begins with another rank, as in a ring of NCCL's.
std::vector<std::byte> reduced(const Meeting& meeting, std::size_t count) {
  const Operation& any = *meeting.arrived.front();
  const ElementType type = element_type(any.type);
  const auto operation = std::ranges::find(detail::nccl_reductions, static_cast<detail::NcclReduction>(any.reduction),
                                           &detail::NcclReductionOf::nccl)
                             ->operation;
  const std::size_t ranks = meeting.arrived.size();
  const bool is_ring = settings().get<bool>("collectives.reproducible");
  const std::size_t part = std::max<std::size_t>(1, is_ring ? (count + ranks - 1) / ranks : count);
  std::vector<std::byte> result(count * element_size(type));
  for (std::size_t begin = 0; begin < count; begin += part) {
    const std::size_t offset = begin * element_size(type);
    std::vector<const std::byte*> contributions;
    for (std::size_t i = 0; i < ranks; ++i) {
      const Operation& rank = *meeting.arrived[(begin / part + (is_ring ? 1 : 0) + i) % ranks];
      contributions.push_back(static_cast<const std::byte*>(rank.source) + offset);
    }
    detail::reduce(type, operation, contributions, std::min(part, count - begin), result.data() + offset);
  }
  return result;
}

void gather(const Meeting& meeting, std::size_t bytes) {
  std::vector<std::byte> all;
  for (const Operation* const rank : meeting.arrived) {
    const auto* const source = static_cast<const std::byte*>(rank->source);
    all.insert(all.end(), source, source + bytes);
  }
  for (const Operation* const rank : meeting.arrived) copy_bytes(rank->destination, all.data(), all.size());
}

// All ranks have come. Memory of those that have been given up may be somebody else's by now.
void perform(Meeting& meeting) {
  if (std::ranges::any_of(meeting.arrived, [](const Operation* rank) { return rank->given_up->load(); })) return;
  std::ranges::sort(meeting.arrived, {}, &Operation::rank);
  const Operation& any = *meeting.arrived.front();
  const std::size_t bytes = any.count * element_size(element_type(any.type));
  switch (any.kind) {
    case Kind::AllReduce: {
      const auto result = reduced(meeting, any.count);
      for (const Operation* const rank : meeting.arrived) copy_bytes(rank->destination, result.data(), bytes);
      break;
    }
    case Kind::Reduce: {
      const auto result = reduced(meeting, any.count);
      copy_bytes(meeting.arrived[static_cast<std::size_t>(any.peer)]->destination, result.data(), bytes);
      break;
    }
    case Kind::ReduceScatter: {
      const auto result = reduced(meeting, any.count * meeting.arrived.size());
      for (const Operation* const rank : meeting.arrived)
        copy_bytes(rank->destination, result.data() + static_cast<std::size_t>(rank->rank) * bytes, bytes);
      break;
    }
    case Kind::Broadcast: {
      const void* const source = meeting.arrived[static_cast<std::size_t>(any.peer)]->source;
      for (const Operation* const rank : meeting.arrived) copy_bytes(rank->destination, source, bytes);
      break;
    }
    case Kind::AllGather: gather(meeting, bytes); break;
    case Kind::Send:
    case Kind::Receive: {
      const bool sends = any.kind == Kind::Send;
      const Operation& other = *meeting.arrived.back();
      copy_bytes(sends ? other.destination : any.destination, sends ? any.source : other.source, bytes);
      break;
    }
  }
  meeting.over = true;
}

// Between processes
// --------------------------------------------------------------------------------------------------------------------

bool is_transfer(Kind kind) { return kind == Kind::Send || kind == Kind::Receive; }

std::size_t input_bytes(const Operation& operation) {
  const std::size_t bytes = operation.count * element_size(element_type(operation.type));
  switch (operation.kind) {
    case Kind::ReduceScatter: return bytes * static_cast<std::size_t>(operation.ranks);
    case Kind::Broadcast: return operation.rank == operation.peer ? bytes : 0;
    case Kind::Receive: return 0;
    default: return bytes;
  }
}
std::size_t output_bytes(const Operation& operation) {
  const std::size_t bytes = operation.count * element_size(element_type(operation.type));
  switch (operation.kind) {
    case Kind::AllGather: return bytes * static_cast<std::size_t>(operation.ranks);
    case Kind::Reduce: return operation.rank == operation.peer ? bytes : 0;
    case Kind::Send: return 0;
    default: return bytes;
  }
}

// All inputs are there.
void perform_shared(const Operation& operation) {
  FakeNcclShared& shared = *operation.shared;
  Meeting inputs;
  std::vector<Operation> ranks;
  for (int rank = 0; rank < operation.ranks; ++rank) {
    ranks.push_back(operation);
    ranks.back().source = shared.input(static_cast<std::size_t>(rank));
  }
  for (const Operation& rank : ranks) inputs.arrived.push_back(&rank);
  auto* const destination = static_cast<std::byte*>(operation.destination);
  const std::size_t bytes = output_bytes(operation);
  switch (operation.kind) {
    case Kind::AllReduce:
    case Kind::Reduce: copy_bytes(destination, reduced(inputs, operation.count).data(), bytes); break;
    case Kind::ReduceScatter: {
      const auto all = reduced(inputs, operation.count * static_cast<std::size_t>(operation.ranks));
      copy_bytes(destination, all.data() + static_cast<std::size_t>(operation.rank) * bytes, bytes);
      break;
    }
    case Kind::Broadcast: copy_bytes(destination, shared.input(static_cast<std::size_t>(operation.peer)), bytes); break;
    case Kind::AllGather:
      for (std::size_t rank = 0; rank < ranks.size(); ++rank)
        copy_bytes(destination + rank * (bytes / ranks.size()), shared.input(rank), bytes / ranks.size());
      break;
    case Kind::Send:
    case Kind::Receive: break;
  }
}

// The memory that the processes share has room for so much.
void require_room(std::size_t bytes) {
  if (bytes <= FakeNcclShared::most_bytes) return;
  std::fprintf(stderr, "the stand-in for NCCL has no room for %zu bytes between processes\n", bytes);
  std::abort();
}

// Whether the operation has got further.
bool advance_transfer(const Operation& operation, Launch::Step& step) {
  FakeNcclShared& shared = *operation.shared;
  const auto own = static_cast<std::size_t>(operation.rank);
  const auto peer = static_cast<std::size_t>(operation.peer);
  const bool sends = operation.kind == Kind::Send;
  FakeNcclShared::Channel& channel = sends ? shared.ranks[own].to[peer] : shared.ranks[peer].to[own];
  const std::uint64_t written = channel.written.load();
  if (sends ? written != channel.read.load() : written == channel.read.load()) return false;
  if (sends) {
    copy_bytes(shared.message(own, peer), operation.source, input_bytes(operation));
    channel.written.store(written + 1);
  } else {
    copy_bytes(operation.destination, shared.message(peer, own), output_bytes(operation));
    channel.read.store(written);
  }
  step = Launch::Step::Done;
  return true;
}

bool advance_shared(const Operation& operation, Launch::Step& step) {
  require_room(input_bytes(operation));
  if (is_transfer(operation.kind)) return advance_transfer(operation, step);
  FakeNcclShared& shared = *operation.shared;
  const auto all_have = [&](std::atomic<std::uint64_t> FakeNcclShared::Channel::* what, std::uint64_t number) {
    for (int rank = 0; rank < operation.ranks; ++rank)
      if ((shared.ranks[static_cast<std::size_t>(rank)].all.*what).load() < number) return false;
    return true;
  };
  const auto own = static_cast<std::size_t>(operation.rank);
  FakeNcclShared::Channel& channel = shared.ranks[own].all;
  if (step == Launch::Step::Begun) {
    const std::uint64_t before = channel.written.load();
    if (!all_have(&FakeNcclShared::Channel::read, before)) return false;
    copy_bytes(shared.input(own), operation.source, input_bytes(operation));
    channel.written.store(before + 1);
    step = Launch::Step::Written;
    if (!only_gives(operation)) return true;
    channel.read.store(before + 1);
    step = Launch::Step::Done;
    return true;
  }
  if (!all_have(&FakeNcclShared::Channel::written, channel.written.load())) return false;
  perform_shared(operation);
  channel.read.store(channel.written.load());
  step = Launch::Step::Done;
  return true;
}

// Another rank has aborted its communicator: a kernel of NCCL that waits for it may end with anything as the result.
bool ends_with_garbage(const Operation& operation) {
  for (int rank = 0; rank < operation.ranks; ++rank) {
    if (is_transfer(operation.kind) && rank != operation.peer) continue;
    if (rank != operation.rank && operation.shared->ranks[static_cast<std::size_t>(rank)].aborted.load() != 0) {
      std::memset(operation.destination, 0xee, output_bytes(operation));
      return true;
    }
  }
  return false;
}

// Under the lock of the driver's stand-in.
bool run_shared(Launch& launch) {
  if (launch.operations.front().given_up->load()) return true;
  for (bool further = true; further;) {
    further = false;
    bool all_waits = false;  // operations of all ranks follow each other
    for (std::size_t i = 0; i < launch.operations.size(); ++i) {
      const Operation& operation = launch.operations[i];
      if (launch.steps[i] == Launch::Step::Done || (!is_transfer(operation.kind) && all_waits)) continue;
      further = advance_shared(operation, launch.steps[i]) || further;
      if (launch.steps[i] == Launch::Step::Done) continue;
      if (ends_with_garbage(operation)) launch.steps[i] = Launch::Step::Done;
      all_waits = all_waits || !is_transfer(operation.kind);
    }
  }
  return std::ranges::all_of(launch.steps, [](Launch::Step step) { return step == Launch::Step::Done; });
}

// Under the lock of the driver's stand-in.
bool run(Launch& launch, bool first_look) {
  if (!launch.steps.empty()) return run_shared(launch);
  for (std::size_t i = 0; first_look && i < launch.operations.size(); ++i) {
    Operation& operation = launch.operations[i];
    Meeting& meeting = *launch.meetings[i];
    if (only_gives(operation)) {
      const auto* const source = static_cast<const std::byte*>(operation.source);
      operation.source = launch.given.emplace_back(source, source + input_bytes(operation)).data();
    }
    meeting.arrived.push_back(&operation);
    const bool all = operation.kind != Kind::Send && operation.kind != Kind::Receive;
    if (meeting.arrived.size() == (all ? static_cast<std::size_t>(operation.ranks) : 2)) perform(meeting);
  }
  if (launch.operations.front().given_up->load()) return true;
  for (std::size_t i = 0; i < launch.operations.size(); ++i)
    if (!launch.meetings[i]->over && !only_gives(launch.operations[i])) return false;
  return true;
}

constexpr const char* kernel_name = "cox_fake_nccl_operations";

CUfunction kernel() {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  const detail::Driver& driver = detail::driver();
  driver.library_load(&library, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0);
  driver.library_kernel(&kernel, library, kernel_name);
  driver.kernel_function(&function, kernel);
  return function;
}

int launch(std::vector<Operation> operations) {
  auto* const stream = static_cast<CUstream>(operations.front().stream);
  std::vector<std::shared_ptr<Meeting>> where;
  std::vector<Launch::Step> steps;
  if (operations.front().shared != nullptr)
    steps.resize(operations.size());
  else
    for (const Operation& operation : operations) where.push_back(meeting_of(operation));
  // Stays for good: other ranks may look at it as long as they like.
  auto* launched = new Launch{std::move(operations), {}, std::move(where), std::move(steps)};
  static auto& all = *new std::vector<std::unique_ptr<Launch>>;
  {
    const std::lock_guard lock(meetings().mutex);
    all.emplace_back(launched);
  }
  std::array<void*, 1> arguments{&launched};
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  static const CUfunction function = kernel();
  const CUresult result = detail::driver().launch(&config, function, arguments.data(), nullptr);
  return static_cast<int>(result == CUDA_SUCCESS ? detail::NcclResult::Success
                                                 : detail::NcclResult::UnhandledCudaError);
}

}  // namespace

void prepare_nccl_stand_in(FakeCuda& fake) {
  const std::string file = settings().get<std::string>("collectives.nccl");
  if (file.empty() || detail::find_nccl().nccl == nullptr) return;
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const entry = library == nullptr ? nullptr : ::dlsym(library, "cox_fake_nccl");
  if (entry == nullptr) return;
  fake.kernels[kernel_name] = {{sizeof(Launch*)}, [] {
                                 return [](const FakeCuda::Run& run) {
                                   Launch* launched = nullptr;
                                   std::memcpy(&launched, run.arguments[0], sizeof(launched));
                                   return test::run(*launched, run.first_look);
                                 };
                               }};
  FakeNccl& nccl = *reinterpret_cast<FakeNccl* (*)()>(entry)();
  const std::lock_guard lock(nccl.mutex);
  nccl.launch = launch;
}

}  // namespace cox::test
