#include <coxswain/tests/servers/contract/random_program.hpp>

#include <coxswain/device_handle/base/find_cause.hpp>
#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <algorithm>

namespace cox::test {
namespace {

// Failures of one stream that may not be reported yet: it keeps 64.
constexpr std::size_t most_unsettled = 48;

using Kind = ProgramFailure::Kind;

}  // namespace

// An operation on its own window. Launches of the program's kernels fail, too: any_fault().
template <class Backend>
void RandomProgram<Backend>::fail() {
  const Client& client = any_stream();
  make_room(64);
  const ProgramWindow whole = windows_[any_window()];
  if (!whole.region->defined || whole.region->constant || whole.size() < 4) return;
  const ProgramWindow window = any_part(whole, 4);
  Kind kind{};
  std::shared_ptr<ProgramCause> cause;
  switch (below(4)) {
    case 0:
      kind = Kind::ArgumentCount;
      cox::test::launch(client, Backend::misused_on(window.handle));
      break;
    case 1:
      kind = Kind::WriteSize;
      client.write(window.handle, Bytes::zeroed(window.size() + 4));
      break;
    case 2:
      kind = Kind::MissingFile;
      client.write(window.handle, Bytes::from_file("/nonexistent/file", 0, window.size()));
      break;
    default:
      kind = Kind::Late;
      cox::test::launch(client, Backend::fail_on(client, window.handle));
      static_cast<void>(storage_of(12));         // a cube count of it, dropped at once
      cause = window.region->storage->poison();  // it may read the window, and does not run then
      if (cause != nullptr) kind = Kind::Poisoned;
  }
  if (cause == nullptr) cause = std::make_shared<ProgramCause>(step_);
  window.region->touch(step_, client.stream_id().value, ProgramFailure::text_of(kind));
  window.region->storage->poison_with(cause);
  note_failure(client, kind, cause);
}

template <class Backend>
void RandomProgram<Backend>::heal(const ProgramWindow& window) {
  const bool is_whole = window.is_whole_allocation() && window.region->defined;
  const std::size_t choice = is_whole ? below(3) : 0;
  if (choice == 1) {
    const ProgramScalars scalars{static_cast<std::uint32_t>(random_()), static_cast<std::uint32_t>(step_), 1};
    return submit_launch(program_jobs[0], {{window, true}}, scalars, true);  // as often as not it overwrites
  }
  const Client& client = any_stream();
  if (choice == 0) {
    window.region->touch(step_, client.stream_id().value, "accept");
    window.region->storage->heal();
    return client.accept(window.handle);
  }
  auto words = any_words(window.size() / 4);
  std::ranges::copy(words, window.words().begin());
  window.region->touch(step_, client.stream_id().value, "write");
  window.region->storage->heal();
  client.write(window.handle, Bytes::from_vector(std::move(words)));
}

template <class Backend>
void RandomProgram<Backend>::note_failure(const Client& client, Kind kind, const std::shared_ptr<ProgramCause>& cause) {
  Due& due = due_of(client);
  due.failures.push_back({kind, cause, step_});
  if (++due.unsettled > most_unsettled) settle(client);
}

template <class Backend>
void RandomProgram<Backend>::settle(const Client& client) {
  Due due = std::exchange(due_of(client), {});
  check({client.sync(), {}, std::move(due.failures), step_, client.stream_id().value});
}

template <class Backend>
void RandomProgram<Backend>::expect_sync(const Client& client) {
  Future<void> met = client.sync();
  std::vector<ProgramFailure> failures = std::exchange(due_of(client).failures, {});
  if (failures.empty()) return;  // dropped
  downloads_.push_back({std::move(met), {}, std::move(failures), step_, client.stream_id().value});
}

// The answers
// -------------------------------------------------------------------------------------------------------------------

template <class Backend>
void RandomProgram<Backend>::check(Download download) {
  std::vector<Bytes> found;
  std::exception_ptr error;
  auto* const read = std::get_if<Future<std::vector<Bytes>>>(&download.future);
  try {
    if (read != nullptr) {
      found = read->get();
    } else {
      std::get<Future<void>>(download.future).get();
    }
  } catch (...) {
    error = std::current_exception();
  }
  if (!failure_.empty()) return;
  const std::string what = here() + ": the " + (read != nullptr ? "read" : "sync") + " of step " +
                           std::to_string(download.step) + " on stream " + std::to_string(download.stream);
  const auto is_poisoned = [](const Expected& expected) { return expected.poison != nullptr; };
  if (!download.failures.empty()) return require_failures(error, download.failures, what);
  if (std::ranges::any_of(download.expected, is_poisoned)) return require_poisoned(error, download.expected, what);
  if (error != nullptr) {
    failure_ = what + " threw: " + describe(error);
  } else if (read != nullptr) {
    compare(found, download.expected, what);
  }
}

template <class Backend>
void RandomProgram<Backend>::require_poisoned(const std::exception_ptr& error, const std::vector<Expected>& expected,
                                              const std::string& read) {
  ProgramCause::Causes causes;
  std::string buffers;
  for (const Expected& each : expected) {
    if (each.poison == nullptr) continue;
    causes.push_back(each.poison);
    buffers += "\n  buffer " + std::to_string(each.region) + ":" + history_of(each.touches);
  }
  const ProgramFailure failure{Kind::Poisoned, join(causes), step_};
  if (error != nullptr && find_cause<ServerError>(error) == nullptr && failure.is(error, Backend::late_kind)) return;
  failure_ = read + (error == nullptr ? " handed out poisoned memory" : " has another failure: " + describe(error)) +
             "; poisoned:" + buffers;
}

template <class Backend>
void RandomProgram<Backend>::require_failures(const std::exception_ptr& error,
                                              const std::vector<ProgramFailure>& failures, const std::string& what) {
  const auto* const found = find_cause<ServerError>(error, ServerError::Kind::Unhealthy);
  const std::size_t count = found == nullptr ? 0 : found->errors().size();
  std::size_t right = 0;
  while (right < count && right < failures.size() && failures[right].is(found->errors()[right], Backend::late_kind))
    ++right;
  if (right == count && right == failures.size()) return;
  failure_ = what + " has " + std::to_string(count) + " failures of " + std::to_string(failures.size()) +
             ", of which " + std::to_string(right) + " are right; the next should be";
  failure_ += right == failures.size() ? std::string(" none") : std::string(" ") + failures[right].text();
  if (error != nullptr) failure_ += ": " + describe(right < count ? found->errors()[right] : error);
}

// All that was queued is done: each handle knows whether its memory is good, and why not.
template <class Backend>
void RandomProgram<Backend>::check_handles() {
  for (const ProgramWindow& window : windows_) {
    if (!window.region->defined || window.region->constant) continue;
    const std::shared_ptr<ProgramCause> poison = window.region->poison();
    const std::optional<MemoryFailure> found = window.handle.failure();
    if (poison == nullptr ? !found : found && poison->confirm(found->cause)) continue;
    failure_ = here() + ": buffer " + std::to_string(window.region->id) +
               (poison == nullptr ? " is good" : " is poisoned") + ", but its handle says " +
               (found ? describe(found->cause) : "nothing") + ":" + history_of(window.region->touches);
    return;
  }
}

COX_INSTANTIATE_RANDOM_PROGRAM

}  // namespace cox::test
