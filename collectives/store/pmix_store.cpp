#include <coxswain/collectives/store/pmix_store.hpp>

#include <coxswain/collectives/store/store_error.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

#include <utility>

namespace cox::detail {
namespace {

[[noreturn]] void fail_unsupported(const std::string& key, const char* call) {
  throw StoreError(StoreError::Kind::Unsupported, "key " + in_quotes(key) + ": PMIx has no " + call);
}

}  // namespace

PmixStore::PmixStore(std::shared_ptr<PmixSession> session, const std::string& run, std::uint32_t restart)
    : Store(store_prefix(run, restart)), session_(std::move(session)) {}

void PmixStore::do_set(const std::string& key, std::span<const std::byte> value, Deadline) {
  if (session_->job().process != 0) fail_unsupported(key, "set for processes other than process 0");
  session_->put(key, value);
}

std::vector<std::byte> PmixStore::do_get(const std::string& key, Deadline deadline) {
  if (auto value = session_->get(0, key, deadline)) return *std::move(value);
  throw StoreError(StoreError::Kind::Timeout, "key " + in_quotes(key) + ": process 0 of PMIx job " +
                                                  session_->job().name +
                                                  " had published no value for it before the deadline");
}

std::int64_t PmixStore::do_add(const std::string& key, std::int64_t, Deadline) { fail_unsupported(key, "add"); }

std::vector<std::byte> PmixStore::do_compare_set(const std::string& key, std::span<const std::byte>,
                                                 std::span<const std::byte>, Deadline) {
  fail_unsupported(key, "compare_set");
}

void PmixStore::do_close(Deadline) { session_.reset(); }

}  // namespace cox::detail
