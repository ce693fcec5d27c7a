#include <coxswain/collectives/store/pmix_session.hpp>

#include <coxswain/collectives/store/store_error.hpp>
#include <coxswain/runtime/base/library_search.hpp>
#include <coxswain/runtime/base/shared_library.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/config/setting_value.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

namespace cox::detail {
namespace {

// The types of PMIx that are needed, as the PMIx Standard 4.1 has them and libpmix.so.2 of OpenPMIx 4 and newer lays
// them out in memory.
using PmixStatus = int;

constexpr PmixStatus pmix_success = 0;
constexpr PmixStatus pmix_operation_succeeded = -157;  // completed at once: the callback is not called
constexpr std::uint32_t pmix_rank_of_job = UINT32_MAX - 1;
constexpr std::uint8_t pmix_global_scope = 3;
constexpr std::uint16_t pmix_bool = 1;
constexpr std::uint16_t pmix_int = 6;
constexpr std::uint16_t pmix_uint16 = 13;
constexpr std::uint16_t pmix_uint32 = 14;
constexpr std::uint16_t pmix_byte_object = 27;

struct PmixProcess {
  std::array<char, 256> job{};
  std::uint32_t process = 0;
};

struct PmixBytes {
  char* data;
  std::size_t size;
};

struct PmixValue {
  std::uint16_t type = 0;
  union {
    std::array<std::uint64_t, 3> whole{};
    bool flag;
    int integer;
    std::uint16_t uint16;
    std::uint32_t uint32;
    PmixBytes bytes;
  };
};

struct PmixInfo {
  std::array<char, 512> key{};
  std::uint32_t flags = 0;
  PmixValue value;

  PmixInfo(std::string_view name, std::uint16_t type) {
    std::copy(name.begin(), name.end(), key.begin());
    value.type = type;
  }
};

static_assert(sizeof(PmixProcess) == 260 && sizeof(PmixValue) == 32 && sizeof(PmixInfo) == 552);

using PmixValueCallback = void (*)(PmixStatus, PmixValue*, void*);

constexpr std::size_t max_pmix_key = 511;

}  // namespace

struct PmixSession::Library {
  PmixStatus (*init)(PmixProcess*, PmixInfo*, std::size_t) = nullptr;
  PmixStatus (*finalize)(const PmixInfo*, std::size_t) = nullptr;
  PmixStatus (*put)(std::uint8_t, const char*, PmixValue*) = nullptr;
  PmixStatus (*commit)() = nullptr;
  PmixStatus (*get)(const PmixProcess*, const char*, const PmixInfo*, std::size_t, PmixValueCallback, void*) = nullptr;
  const char* (*error_text)(PmixStatus) = nullptr;
  const char* (*version)() = nullptr;
  std::string file;
};

/// A get that has been started. The library's thread completes it, maybe after its waiter has left; until then the
/// library reads the arguments.
struct PmixSession::Pending {
  PmixProcess source;
  std::string key;
  std::array<PmixInfo, 2> options{PmixInfo{"pmix.timeout", pmix_int}, PmixInfo{"pmix.get.refresh", pmix_bool}};

  std::mutex mutex;
  std::condition_variable completes;
  bool has_completed = false;
  PmixStatus status = pmix_success;
  std::vector<std::byte> bytes;
  std::optional<std::uint32_t> number;

  static void complete(PmixStatus status, PmixValue* value, void* data) {
    const std::unique_ptr<std::shared_ptr<Pending>> holder(static_cast<std::shared_ptr<Pending>*>(data));
    Pending& pending = **holder;
    const std::scoped_lock lock(pending.mutex);
    pending.status = status;
    if (status == pmix_success && value != nullptr) pending.take(*value);
    pending.has_completed = true;
    pending.completes.notify_all();
  }
  [[nodiscard]] bool wait(Store::Deadline deadline) {
    std::unique_lock lock(mutex);
    if (deadline == Store::Deadline::max()) {
      completes.wait(lock, [&] { return has_completed; });
      return true;
    }
    return completes.wait_until(lock, deadline, [&] { return has_completed; });
  }

 private:
  void take(const PmixValue& value) {
    if (value.type == pmix_byte_object && value.bytes.data != nullptr) {
      const auto content = std::as_bytes(std::span(value.bytes.data, value.bytes.size));
      bytes.assign(content.begin(), content.end());
    } else if (value.type == pmix_uint32) {
      number = value.uint32;
    } else if (value.type == pmix_uint16) {
      number = value.uint16;
    }
  }
};

const PmixSession::Library& PmixSession::library() {
  static const Library& opened = [&]() -> const Library& {
    const LibrarySearch search{settings().get<std::string>("world.pmix"), {"libpmix.so.2"}, {}};
    const SharedLibrary found = SharedLibrary::open(library_candidates(search, SearchRoots{}));
    if (!found)
      throw StoreError(StoreError::Kind::Unreachable,
                       "the PMIx library was not found (setting world.pmix): " + found.error());
    auto made = std::make_unique<Library>();
    const auto find = [&](auto& entry, const char* name) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(found.find(name));
      if (entry == nullptr)
        throw StoreError(StoreError::Kind::Unreachable, found.file() + " is no PMIx library: it has no " + name);
    };
    find(made->init, "PMIx_Init");
    find(made->finalize, "PMIx_Finalize");
    find(made->put, "PMIx_Put");
    find(made->commit, "PMIx_Commit");
    find(made->get, "PMIx_Get_nb");
    find(made->error_text, "PMIx_Error_string");
    find(made->version, "PMIx_Get_version");
    made->file = found.file();
    log::write(LogSubsystem::Collectives, LogLevel::Debug,
               [&] { return "PMIx is " + std::string(made->version()) + ", " + made->file; });
    return *made.release();  // never freed, as the library is never closed
  }();
  return opened;
}

std::shared_ptr<PmixSession> PmixSession::open() {
  static std::mutex mutex;
  static std::weak_ptr<PmixSession> current;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<PmixSession> session = current.lock();
  if (session == nullptr) {
    session.reset(new PmixSession(library()));
    current = session;
  }
  return session;
}

PmixSession::PmixSession(const Library& library) : library_(library) {
  PmixProcess own;
  const PmixStatus status = library_.init(&own, nullptr, 0);
  if (status != pmix_success) fail("PMIx_Init", status);
  job_.name.assign(own.job.data(), strnlen(own.job.data(), own.job.size()));
  job_.process = own.process;
  const std::optional<std::uint32_t> processes = number_of(pmix_rank_of_job, "pmix.job.size");
  if (!processes) {
    library_.finalize(nullptr, 0);
    throw StoreError(StoreError::Kind::Protocol, "PMIx does not know how many processes the job has (pmix.job.size)");
  }
  job_.processes = *processes;
  job_.local_process = number_of(own.process, "pmix.lrank");
  job_.local_processes = number_of(pmix_rank_of_job, "pmix.local.size");
}

PmixSession::~PmixSession() { static_cast<void>(library_.finalize(nullptr, 0)); }

void PmixSession::put(const std::string& key, std::span<const std::byte> value) const {
  if (key.size() > max_pmix_key)
    throw StoreError(StoreError::Kind::TooLarge, "the key " + in_quotes(key) + " is too long for PMIx");
  std::vector<std::byte> copy(value.begin(), value.end());  // the library takes a pointer to non-const
  PmixValue given;
  given.type = pmix_byte_object;
  given.bytes = {reinterpret_cast<char*>(copy.data()), copy.size()};
  if (const PmixStatus status = library_.put(pmix_global_scope, key.c_str(), &given); status != pmix_success)
    fail("PMIx_Put", status);
  if (const PmixStatus status = library_.commit(); status != pmix_success) fail("PMIx_Commit", status);
}

std::optional<std::vector<std::byte>> PmixSession::get(std::uint32_t process, const std::string& key,
                                                       Store::Deadline deadline) const {
  constexpr std::chrono::milliseconds longest_pause{100};
  if (key.size() > max_pmix_key)
    throw StoreError(StoreError::Kind::TooLarge, "the key " + in_quotes(key) + " is too long for PMIx");
  // A process that has published other keys only is reported as not having this one: try again.
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, longest_pause)) {
    const std::shared_ptr<Pending> pending = begin_get(process, key, deadline);
    if (!pending->wait(deadline)) return std::nullopt;
    if (pending->status == pmix_success) return std::move(pending->bytes);
    const auto time = time_until(deadline, pause);
    if (time <= time.zero()) return std::nullopt;
    std::this_thread::sleep_for(time);
  }
}

std::shared_ptr<PmixSession::Pending> PmixSession::begin_get(std::uint32_t process, const std::string& key,
                                                             Store::Deadline deadline) const {
  auto pending = std::make_shared<Pending>();
  std::copy_n(job_.name.begin(), std::min(job_.name.size(), pending->source.job.size() - 1),
              pending->source.job.begin());
  pending->source.process = process;
  pending->key = key;
  const auto time = std::chrono::ceil<std::chrono::seconds>(time_until(deadline, std::chrono::hours(1)));
  pending->options[0].value.integer = static_cast<int>(time.count());
  pending->options[1].value.flag = true;
  auto holder = std::make_unique<std::shared_ptr<Pending>>(pending);
  const PmixStatus status = library_.get(&pending->source, pending->key.c_str(), pending->options.data(),
                                         pending->options.size(), &Pending::complete, holder.get());
  if (status == pmix_success) {
    static_cast<void>(holder.release());  // the callback deletes it
  } else {
    pending->status = status == pmix_operation_succeeded ? -1 : status;
    pending->has_completed = true;
  }
  return pending;
}

std::optional<std::uint32_t> PmixSession::number_of(std::uint32_t process, const char* key) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const std::shared_ptr<Pending> pending = begin_get(process, key, deadline);
  if (!pending->wait(deadline)) return std::nullopt;
  return pending->number;
}

void PmixSession::fail(const char* call, int status) const {
  throw StoreError(StoreError::Kind::Unreachable, std::string(call) + " failed: " + library_.error_text(status) + " (" +
                                                      std::to_string(status) + "), " + library_.file);
}

}  // namespace cox::detail
