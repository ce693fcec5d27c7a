// A library that stands in for NCCL where there is no GPU, and where NCCL must fail.
#include <coxswain/tests/fake_nccl/fake_nccl.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>

using cox::test::FakeNccl;
using cox::test::FakeNcclShared;
using Operation = FakeNccl::Operation::Kind;

struct ncclComm {
  std::uint64_t communicator;
  int rank;
  int ranks;
  std::shared_ptr<std::atomic<bool>> given_up = std::make_shared<std::atomic<bool>>(false);
  // Of several processes:
  std::string file{};
  std::shared_ptr<FakeNcclShared> shared{};
  bool blocking = true;
  std::uint32_t splits = 0;
  ncclComm* child = nullptr;           // of the split that is in progress
  ncclComm** child_to_tell = nullptr;  // where the caller expects it
};

namespace {

struct FakeUniqueId {
  char name[128];
};
/// The first members of ncclConfig_t.
struct FakeConfig {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net;
  int others[2];
  const char* name;
};

constexpr int success = 0;
constexpr int internal_error = 3;
constexpr int invalid_argument = 4;
constexpr int in_progress = 7;

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
thread_local std::vector<ncclComm*> created;            // in one of them, all ranks of a communicator
thread_local bool group_failed = false;                 // a call in one of them: then none of it is launched

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

// What was copied on the stream of the driver's stand-in has been copied.
void synchronize(void* stream) {
  static const auto wait = [] {
    const char* const driver = std::getenv("COX_CUDA_DRIVER");
    void* const library = driver == nullptr ? nullptr : ::dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, "cuStreamSynchronize");
    return reinterpret_cast<int (*)(void*)>(entry);
  }();
  if (wait != nullptr) wait(stream);
}

// Operations do nothing if FakeNccl::launch is not set, but for the maximum of bytes of several processes: by that they
// exchange what they need to share memory when they create a communicator. The calling thread waits for the others.
bool is_exchange(const FakeNccl::Operation& operation) {
  constexpr int uint8 = 1;
  constexpr int max = 2;
  return operation.shared != nullptr && operation.kind == Operation::AllReduce && operation.type == uint8 &&
         operation.reduction == max;
}
void begin_exchange(const FakeNccl::Operation& operation) {
  synchronize(operation.stream);
  const auto own = static_cast<std::size_t>(operation.rank);
  FakeNcclShared::Channel& channel = operation.shared->ranks[own].all;
  const auto have_read = [&] {
    for (int rank = 0; rank < operation.ranks; ++rank)
      if (operation.shared->ranks[static_cast<std::size_t>(rank)].all.read < channel.written) return false;
    return true;
  };
  while (!have_read() && !*operation.given_up) std::this_thread::yield();
  std::memcpy(operation.shared->input(own), operation.source, operation.count);
  ++channel.written;
}
void end_exchange(const FakeNccl::Operation& operation) {
  FakeNcclShared& shared = *operation.shared;
  FakeNcclShared::Channel& channel = shared.ranks[static_cast<std::size_t>(operation.rank)].all;
  auto* const result = static_cast<unsigned char*>(operation.destination);
  for (int rank = 0; rank < operation.ranks; ++rank) {
    const auto other = static_cast<std::size_t>(rank);
    while (shared.ranks[other].all.written < channel.written && shared.ranks[other].aborted == 0 &&
           !*operation.given_up)
      std::this_thread::yield();
    const auto* const input = reinterpret_cast<const unsigned char*>(shared.input(other));
    for (std::size_t i = 0; i < operation.count; ++i) result[i] = std::max(result[i], input[i]);
  }
  ++channel.read;
}

int launch(std::vector<FakeNccl::Operation> operations) {
  std::function<int(std::vector<FakeNccl::Operation>)> launched;
  {
    const std::lock_guard lock(state().mutex);
    launched = state().launch;
  }
  if (launched) return launched(std::move(operations));
  for (const FakeNccl::Operation& operation : operations)
    if (is_exchange(operation)) begin_exchange(operation);
  for (const FakeNccl::Operation& operation : operations)
    if (is_exchange(operation)) end_exchange(operation);
  return success;
}

// Of each rank together.
int launch_grouped() {
  std::vector<FakeNccl::Operation> left = std::exchange(grouped, {});
  const bool does_nothing = [] {
    const std::lock_guard lock(state().mutex);
    return state().launch == nullptr;
  }();
  if (does_nothing) return launch(std::move(left));
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

// COX_FAKE_NCCL_DIES names a function in which the process is killed: init, split or operation; with a number behind
// it, after so many calls of it.
void die_if_asked(const std::string& function) {
  const char* const where = std::getenv("COX_FAKE_NCCL_DIES");
  if (where == nullptr || !std::string(where).starts_with(function)) return;
  static std::atomic<unsigned long> calls{0};
  const std::string after = std::string(where).substr(function.size());
  if (calls.fetch_add(1) >= (after.empty() ? 0 : std::stoul(after))) ::raise(SIGKILL);
}

int enqueue(const ncclComm* comm, FakeNccl::Operation operation, const char* function = __builtin_FUNCTION()) {
  die_if_asked("operation");
  {
    const std::lock_guard lock(state().mutex);
    if (!is_open(comm, function)) return invalid_argument;
    state().calls.push_back({FakeNccl::Kind::Enqueue, comm->rank});
    if (fails()) {
      group_failed = open_groups != 0;
      return internal_error;
    }
    operation.communicator = comm->communicator;
    operation.rank = comm->rank;
    operation.ranks = comm->ranks;
    operation.given_up = comm->given_up;
    operation.shared = comm->shared;
    if (comm->shared != nullptr && !comm->blocking) state().misuse.push_back("a launch on a non-blocking communicator");
  }
  if (open_groups == 0) return launch({std::move(operation)});
  grouped.push_back(std::move(operation));
  return success;
}

// Under the lock. What the others wait for does not come any more: their operations end, with anything as the result.
void tell_aborted(const ncclComm& comm) {
  if (comm.shared == nullptr) return;
  comm.shared->ranks[static_cast<std::size_t>(comm.rank)].aborted.store(1);
  ::unlink(comm.file.c_str());
}

std::shared_ptr<FakeNcclShared> map(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, FakeNcclShared::bytes) != 0) return nullptr;
  void* const found = ::mmap(nullptr, FakeNcclShared::bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (found == MAP_FAILED) return nullptr;
  return {static_cast<FakeNcclShared*>(found), [](FakeNcclShared* shared) { ::munmap(shared, FakeNcclShared::bytes); }};
}

// Under the lock. For communicators that have all their ranks in this process.
std::uint64_t next_communicator() {
  static std::uint64_t last = 0;
  return ++last;
}

// Under the lock.
ncclComm* attach(const std::string& file, int rank, int ranks, bool blocking) {
  static std::uint64_t last = std::uint64_t{1} << 32U;
  auto shared = map(file);
  if (shared == nullptr) return nullptr;
  auto* const comm = new ncclComm{.communicator = ++last, .rank = rank, .ranks = ranks};
  comm->file = file;
  comm->blocking = blocking;
  comm->shared = std::move(shared);
  comm->shared->ranks[static_cast<std::size_t>(rank)].attached.store(1);
  open_comms().insert(comm);
  ++state().live;
  return comm;
}

bool all_attached(const ncclComm& comm) {
  for (int rank = 0; rank < comm.ranks; ++rank)
    if (comm.shared->ranks[static_cast<std::size_t>(rank)].attached.load() == 0) return false;
  return true;
}

// Under the lock. Whether what was asked of the communicator is still in progress.
bool is_in_progress(ncclComm& comm) {
  if (comm.shared == nullptr) return false;
  if (!all_attached(comm)) return true;
  if (comm.child != nullptr) {
    if (!all_attached(*comm.child)) return true;
    ::unlink(comm.child->file.c_str());
    *comm.child_to_tell = std::exchange(comm.child, nullptr);
  }
  ::unlink(comm.file.c_str());
  return false;
}

int end(ncclComm* comm, FakeNccl::Kind kind, const char* function) {
  const auto held = [] {
    const std::lock_guard lock(state().mutex);
    return state().hold_abort;
  };
  const auto at_end = [] {
    const std::lock_guard lock(state().mutex);
    return state().at_end;
  }();
  if (at_end) at_end(kind);
  while (kind == FakeNccl::Kind::Abort && held()) std::this_thread::yield();
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, function)) return invalid_argument;
  state().calls.push_back({kind, comm->rank});
  if (kind == FakeNccl::Kind::Abort) tell_aborted(*comm);
  if (comm->child != nullptr) {  // a split that has not ended
    ::unlink(comm->child->file.c_str());
    open_comms().erase(comm->child);
    --state().live;
    delete comm->child;
  }
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
  {
    const std::lock_guard lock(state().mutex);
    state().calls.push_back({FakeNccl::Kind::Create, -1});
  }
  while (held()) std::this_thread::yield();
  const std::lock_guard lock(state().mutex);
  if (fails()) return internal_error;
  const std::uint64_t communicator = next_communicator();
  for (int rank = 0; rank < ranks; ++rank) {
    comms[rank] = new ncclComm{.communicator = communicator, .rank = rank, .ranks = ranks};
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
  tell_aborted(*comm);
  comm->given_up->store(true);
  return fails() ? internal_error : success;
}
int ncclCommGetAsyncError(ncclComm* comm, int* error) {
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, "ncclCommGetAsyncError")) return invalid_argument;
  *error = is_in_progress(*comm) ? in_progress : state().async_error;
  return success;
}

// The id is the name of the file that the ranks share.
int ncclGetUniqueId(FakeUniqueId* id) {
  const std::lock_guard lock(state().mutex);
  state().calls.push_back({FakeNccl::Kind::UniqueId, -1});
  if (fails()) return internal_error;
  // In the folder of a world of one host, whoever ends there and how: it is removed with its contents.
  const char* const world = std::getenv("COX_WORLD");
  const std::string place = world == nullptr ? "" : world;
  std::string file = (place.starts_with("file:") ? place.substr(5) : "/dev/shm") + "/cox_fake_nccl_XXXXXX";
  const int fd = ::mkstemp(file.data());
  if (fd < 0) return internal_error;
  ::close(fd);
  static struct Made {
    ~Made() {
      for (const std::string& each : files) ::unlink(each.c_str());
    }
    std::vector<std::string> files;
  } made;  // for ids that are never used
  made.files.push_back(file);
  std::snprintf(id->name, sizeof id->name, "%s", file.c_str());
  return success;
}
int ncclCommInitRankConfig(ncclComm** comm, int ranks, FakeUniqueId id, int rank, FakeConfig* config) {
  die_if_asked("init");
  std::unique_lock lock(state().mutex);
  state().calls.push_back({FakeNccl::Kind::InitRank, rank});
  if (config->magic != 0xcafebeef || config->size < sizeof(FakeConfig) || ranks > int{FakeNcclShared::most_ranks})
    return invalid_argument;
  if (config->blocking != 0 && open_groups == 0) state().misuse.push_back("a creation that cannot be aborted");
  state().ctas.push_back({config->min_ctas, config->max_ctas});
  state().names.emplace_back(config->name == nullptr ? "" : config->name);
  if (fails()) {
    group_failed = open_groups != 0;
    return internal_error;
  }
  if (config->blocking != 0 && open_groups != 0) {
    ::unlink(id.name);
    const std::uint64_t communicator = created.empty() ? next_communicator() : created.front()->communicator;
    *comm = new ncclComm{.communicator = communicator, .rank = rank, .ranks = ranks};
    open_comms().insert(*comm);
    ++state().live;
    created.push_back(*comm);
    return success;
  }
  *comm = attach(id.name, rank, ranks, config->blocking != 0);
  if (*comm == nullptr) return internal_error;
  if (config->blocking == 0) return in_progress;
  while (is_in_progress(**comm)) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
  return success;
}
int ncclCommSplit(ncclComm* comm, int color, int key, ncclComm** child, FakeConfig* config) {
  die_if_asked("split");
  const std::lock_guard lock(state().mutex);
  if (!is_open(comm, "ncclCommSplit")) return invalid_argument;
  state().calls.push_back({FakeNccl::Kind::Split, comm->rank});
  state().ctas.push_back({config->min_ctas, config->max_ctas});
  if (color != 0 || key != comm->rank || is_in_progress(*comm))
    state().misuse.push_back("a split that this does not know");
  if (fails()) return internal_error;
  *child = nullptr;
  comm->child =
      attach(comm->file + "." + std::to_string(++comm->splits), comm->rank, comm->ranks, config->blocking != 0);
  comm->child_to_tell = child;
  return comm->child == nullptr ? internal_error : in_progress;
}

int ncclGroupStart() {
  ++open_groups;
  const std::lock_guard lock(state().mutex);
  state().calls.push_back({FakeNccl::Kind::GroupStart, -1});
  if (!fails()) return success;
  --open_groups;
  group_failed = open_groups != 0;
  return internal_error;
}
// A group of creations ends at once, as those of non-blocking communicators do.
int ncclGroupEnd() {
  {
    const std::lock_guard lock(state().mutex);
    if (--open_groups < 0) state().misuse.push_back("ncclGroupEnd without a group");
    state().calls.push_back({FakeNccl::Kind::GroupEnd, -1});
    if (const auto all = std::exchange(created, {});
        !group_failed && !all.empty() && all.size() != static_cast<std::size_t>(all.front()->ranks))
      state().misuse.push_back("a creation that cannot be aborted");
    if (fails()) group_failed = true;
    if (group_failed) {
      grouped.clear();
      group_failed = open_groups > 0;
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
