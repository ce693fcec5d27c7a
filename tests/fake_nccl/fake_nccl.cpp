// A library that stands in for NCCL where there is no GPU, and where NCCL must fail.
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

using cox::test::FakeNccl;
using Operation = FakeNccl::Operation::Kind;

struct ncclComm {
  std::uint64_t communicator;
  int rank;
  int ranks;
  std::shared_ptr<std::atomic<bool>> given_up = std::make_shared<std::atomic<bool>>(false);
};

namespace {

constexpr int success = 0;
constexpr int internal_error = 3;
constexpr int invalid_argument = 4;

FakeNccl& state() {
  static auto& state = *new FakeNccl;
  return state;
}

// Under the lock.
std::set<const ncclComm*>& open_comms() {
  static auto& comms = *new std::set<const ncclComm*>;
  return comms;
}

thread_local int open_groups = 0;
thread_local std::vector<FakeNccl::Operation> grouped;  // of those

// Under the lock. Whether this call is the one that fails.
bool fails() {
  FakeNccl& fake = state();
  return fake.calls_until_failure >= 0 && fake.calls_until_failure-- == 0;
}

// Under the lock.
bool is_open(const ncclComm* comm, const char* function) {
  if (open_comms().contains(comm)) return true;
  state().misuse.push_back(std::string(function) + " of a communicator that is not there");
  return false;
}

int launch(std::vector<FakeNccl::Operation> operations) {
  std::function<int(std::vector<FakeNccl::Operation>)> launched;
  {
    const std::lock_guard lock(state().mutex);
    launched = state().launch;
  }
  return launched ? launched(std::move(operations)) : success;
}

// Of each rank together.
int launch_grouped() {
  std::vector<FakeNccl::Operation> left = std::exchange(grouped, {});
  while (!left.empty()) {
    const auto belongs = [first = left.front()](const FakeNccl::Operation& each) {
      return each.communicator == first.communicator && each.rank == first.rank && each.stream == first.stream;
    };
    const auto others = std::ranges::stable_partition(left, belongs);
    const std::vector<FakeNccl::Operation> rest(others.begin(), others.end());
    left.erase(others.begin(), others.end());
    if (const int result = launch(std::move(left)); result != success) return result;
    left = rest;
  }
  return success;
}

int enqueue(const ncclComm* comm, FakeNccl::Operation operation, const char* function = __builtin_FUNCTION()) {
  {
    const std::lock_guard lock(state().mutex);
    if (!is_open(comm, function)) return invalid_argument;
    state().calls.push_back({FakeNccl::Kind::Enqueue, comm->rank});
    if (fails()) return internal_error;
    operation.communicator = comm->communicator;
    operation.rank = comm->rank;
    operation.ranks = comm->ranks;
    operation.given_up = comm->given_up;
  }
  if (open_groups == 0) return launch({std::move(operation)});
  grouped.push_back(std::move(operation));
  return success;
}

int end(ncclComm* comm, FakeNccl::Kind kind, const char* function) {
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, function)) return invalid_argument;
  state().calls.push_back({kind, comm->rank});
  open_comms().erase(comm);
  --state().live;
  if (kind == FakeNccl::Kind::Abort) comm->given_up->store(true);
  delete comm;
  return fails() ? internal_error : success;
}

}  // namespace

extern "C" {

FakeNccl* cox_fake_nccl() { return &state(); }

int ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}
const char* ncclGetErrorString(int) { return "the error that the test asked for"; }
const char* ncclGetLastError(ncclComm*) { return "nothing more"; }

int ncclCommInitAll(ncclComm** comms, int ranks, const int*) {
  const auto held = [] {
    const std::lock_guard lock(state().mutex);
    return state().hold_creation;
  };
  while (held()) std::this_thread::yield();
  const std::lock_guard lock(state().mutex);
  state().calls.push_back({FakeNccl::Kind::Create, -1});
  if (fails()) return internal_error;
  static std::uint64_t communicators = 0;
  ++communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    comms[rank] = new ncclComm{.communicator = communicators, .rank = rank, .ranks = ranks};
    open_comms().insert(comms[rank]);
    ++state().live;
  }
  return success;
}
int ncclCommDestroy(ncclComm* comm) { return end(comm, FakeNccl::Kind::Destroy, "ncclCommDestroy"); }
int ncclCommAbort(ncclComm* comm) { return end(comm, FakeNccl::Kind::Abort, "ncclCommAbort"); }
int ncclCommRevoke(ncclComm* comm, int) {
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, "ncclCommRevoke")) return invalid_argument;
  state().calls.push_back({FakeNccl::Kind::Revoke, comm->rank});
  comm->given_up->store(true);
  return fails() ? internal_error : success;
}
int ncclCommGetAsyncError(ncclComm* comm, int* error) {
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, "ncclCommGetAsyncError")) return invalid_argument;
  *error = state().async_error;
  return success;
}

int ncclGroupStart() {
  ++open_groups;
  const std::lock_guard lock(state().mutex);
  state().calls.push_back({FakeNccl::Kind::GroupStart, -1});
  if (!fails()) return success;
  --open_groups;
  return internal_error;
}
int ncclGroupEnd() {
  {
    const std::lock_guard lock(state().mutex);
    if (--open_groups < 0) state().misuse.push_back("ncclGroupEnd without a group");
    state().calls.push_back({FakeNccl::Kind::GroupEnd, -1});
    if (fails()) {
      grouped.clear();
      return internal_error;
    }
  }
  return open_groups == 0 ? launch_grouped() : success;
}

int ncclAllReduce(const void* source, void* destination, std::size_t count, int type, int reduction, ncclComm* comm,
                  void* stream) {
  return enqueue(comm, {Operation::AllReduce, source, destination, count, type, reduction, 0, stream});
}
int ncclReduce(const void* source, void* destination, std::size_t count, int type, int reduction, int root,
               ncclComm* comm, void* stream) {
  return enqueue(comm, {Operation::Reduce, source, destination, count, type, reduction, root, stream});
}
int ncclBroadcast(const void* source, void* destination, std::size_t count, int type, int root, ncclComm* comm,
                  void* stream) {
  return enqueue(comm, {Operation::Broadcast, source, destination, count, type, 0, root, stream});
}
int ncclAllGather(const void* source, void* destination, std::size_t count, int type, ncclComm* comm, void* stream) {
  return enqueue(comm, {Operation::AllGather, source, destination, count, type, 0, 0, stream});
}
int ncclReduceScatter(const void* source, void* destination, std::size_t count, int type, int reduction, ncclComm* comm,
                      void* stream) {
  return enqueue(comm, {Operation::ReduceScatter, source, destination, count, type, reduction, 0, stream});
}
int ncclSend(const void* source, std::size_t count, int type, int peer, ncclComm* comm, void* stream) {
  return enqueue(comm, {Operation::Send, source, nullptr, count, type, 0, peer, stream});
}
int ncclRecv(void* destination, std::size_t count, int type, int peer, ncclComm* comm, void* stream) {
  return enqueue(comm, {Operation::Receive, nullptr, destination, count, type, 0, peer, stream});
}

}  // extern "C"
